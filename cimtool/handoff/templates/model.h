/* {{ name }}: written by cimtool. */
#ifndef MODEL_H
#define MODEL_H
#include <stdint.h>

enum { MODEL_WEIGHTS_BYTES = {{ tables.size }} };

/* What is kept of an item: its features, and what scores read of them. A name that
 * ends in _ is computed from features by `_prepare`, which `_encode` calls. */
{% for modality, held in fields.items() %}
typedef struct {
{% for one in held %}
    {{ one.kind }} {{ one.own }}{{ "[" ~ one.count ~ "]" if one.count }};
{% endfor %}
} {{ modality }}_item;

{% endfor %}
{{ declarations | join("\n\n") }}
#endif
