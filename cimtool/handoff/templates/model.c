/* {{ name }}: written by cimtool. */
#define CIM_GROUP_ROWS {{ group_rows }}
#include "model.h"
#include "cim.h"

/* A hook for intermediate values: `number` is number j of `count`; `item` is 0 for other values. */
#ifndef CIM_SEE
#define CIM_SEE(value, item, count, number)
#endif

/* Places of the tables in the weights. */
enum {
{% for name, _, place, _ in tables.items() %}
    {{ name }} = {{ place }}{{ "," if not loop.last }}
{% else %}
    NO_TABLES
{% endfor %}
};

{{ definitions | join("\n") }}
