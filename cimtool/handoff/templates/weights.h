/* The constants of model.c: pass &model_weights. */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H
#include <stdint.h>

static const struct {
{{ members | join("\n") }}
} model_weights = {
{{ numbers | join(",\n") }}};
#endif
