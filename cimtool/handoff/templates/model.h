/* {{ name }}: written by cimtool. */
#ifndef MODEL_H
#define MODEL_H
#include <stdint.h>

enum { MODEL_WEIGHTS_BYTES = {{ tables.size }} };

/* A stored item: its features, and the values that scores read. `_prepare`, which
 * `_encode` calls, computes values whose name ends in _ from the features. */
{% for modality, held in fields.items() %}
typedef struct {
{% for one in held %}
    {{ one.kind }} {{ one.own }}{{ "[" ~ one.count ~ "]" if one.count }};
{% endfor %}
} {{ modality }}_item;

{% endfor %}
{{ declarations | join("\n\n") }}
#endif
