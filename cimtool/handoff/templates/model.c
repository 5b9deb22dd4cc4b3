/* {{ name }}: written by cimtool. */
#define CIM_GROUP_ROWS {{ group_rows }}
#include "model.h"
#include "cim.h"

/* Shows a value on the way, of an item where it is one: number j of `count`. */
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
