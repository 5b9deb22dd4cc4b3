/* Every layer of the bench on arrays; its tables are in layers.bin. */
#ifndef LAYERS_H
#define LAYERS_H
#define CIM_GROUP_ROWS {{ group_rows }}
#include "cim.h"

/* Places of the tables in layers.bin. */
enum {
{% for name, _, place, _ in tables.items() %}
    {{ name }} = {{ place }},
{% endfor %}
};

{{ definitions | join("\n") }}
enum {
{% for name, value in extents.items() %}
    {{ name }} = {{ value }},
{% endfor %}
};

/* The lanes of an array, except the unit column's, by kind of macro: the slice and the
 * weight of each. */
struct layer_lanes {
    int32_t count;
    const int32_t *slice, *weight;
};
{% for kind, slices, weights in lanes %}
static const int32_t {{ kind }}_slice[] = {{ "{" }}{{ slices | join(", ") }}};
static const int32_t {{ kind }}_weight[] = {{ "{" }}{{ weights | join(", ") }}};
static const struct layer_lanes {{ kind }} = {{ "{" }}{{ slices | count }}, {{ kind }}_slice, {{ kind }}_weight};
{% endfor %}

/* LAYER/rR/gG: row group G of the arrays in row R; `lo` and `hi` are the places of the
 * least and the largest input of each row of the layer, int32_t. */
static const struct layer_read {
    const char *name;
    const cim_layer *layer;
    int32_t group, lo, hi;
    const struct layer_lanes *lanes;
} layer_reads[] = {
{{ reads | join(",\n") }}
};
#endif
