/* The golden model as the bench calls it: the taps of one array, for a row group and any inputs.
 *
 * layers.h describes every layer of the bench as cim.h does, lossless ones too. */
#include "layers.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const unsigned char *weights;
static const struct layer_read *now;
static int32_t first, end; /* the columns of the array, from the start of a block */
static int32_t column;
static uint64_t state, first_state;
static int32_t vector;  /* of the read, from 0 */
static int32_t vectors; /* of every read */
static int64_t *totals; /* [vectors][LAYER_COLUMNS]: what row groups of the layer gave so far */
static int32_t summed = -1;
static int64_t layer_sums[LAYER_COLUMNS + CIM_BLOCK]; /* of the vector `summed` */

static int32_t inputs[LAYER_ROWS];
static int32_t digits[LAYER_CYCLES][CIM_GROUP_ROWS];
static int64_t sums[LAYER_CYCLES][LAYER_SLICES][LAYER_COLUMNS + CIM_BLOCK];
static int64_t unit[LAYER_CYCLES];
static uint64_t added[LAYER_COLUMNS + CIM_BLOCK];

static void fail(const char *what, const char *name) {
    fprintf(stderr, "random/dpi.c: %s%s\n", what, name);
    exit(1);
}

/* A random number of 64 bits: splitmix64. */
static uint64_t drawn(void) {
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* The limits of the input of a row of the layer. */
static int64_t least(int32_t row) { return CIM_TABLE(int32_t, weights, now->lo)[row]; }

static int64_t largest(int32_t row) { return CIM_TABLE(int32_t, weights, now->hi)[row]; }

static int32_t drawn_input(int32_t row) {
    return (int32_t)(least(row) + (int64_t)(drawn() % (uint64_t)(largest(row) - least(row) + 1)));
}

void random_begin(const char *handoff, int seed, int count) {
    char name[4096];
    FILE *file;
    unsigned char *content = malloc(LAYERS_BYTES + 1);
    snprintf(name, sizeof name, "%s/random/layers.bin", handoff);
    file = fopen(name, "rb");
    if (!file || !content || fread(content, 1, LAYERS_BYTES + 1, file) != LAYERS_BYTES)
        fail("not the constants of layers.h: ", name);
    fclose(file);
    weights = content;
    first_state = (uint64_t)seed;
    vectors = count;
    totals = calloc((size_t)count * LAYER_COLUMNS + 1, sizeof *totals);
    if (!totals)
        fail("no memory for the sums of ", "vectors");
}

/* The row group of LAYER/rR/gG, and the columns of one array. */
void random_read(const char *read, int from, int to) {
    now = layer_reads;
    while (now < layer_reads + LAYER_READS && strcmp(now->name, read))
        now++;
    if (now == layer_reads + LAYER_READS)
        fail("layers.h has no ", read);
    column = from;
    first = from / CIM_BLOCK * CIM_BLOCK;
    end = to;
    vector = 0;
    summed = -1;
}

/* The first SWEEP vectors of a read step every row through its range, each from a start of its own:
 * rows of up to SWEEP inputs get each of them. */
enum { SWEEP = 256 };

static int64_t swept_input(int32_t row) {
    int64_t range = largest(row) - least(row) + 1, step = (range - 1) / SWEEP + 1;
    return least(row) + ((int64_t)vector * step + (int64_t)row * 97) % range;
}

/* Draw inputs: of any size, or small, or mostly zero. */
static void draw(void) {
    int32_t rows = now->layer->rows, size;
    int kind;
    /* Every read of a layer gets the same vectors, so that they add up. */
    state = first_state + (uint64_t)vector * UINT64_C(0x2545f4914f6cdd1d);
    size = (int32_t)(drawn() % 31);
    kind = (int)(drawn() % 3);
    for (int32_t r = 0; r < rows; r++) {
        int64_t x = drawn_input(r);
        if (vector < SWEEP) {
            inputs[r] = (int32_t)swept_input(r);
            continue;
        }
        if (kind == 1)
            x = cim_clip(x / ((int64_t)1 << size), least(r), largest(r));
        else if (kind == 2 && drawn() % 4)
            x = cim_clip(0, least(r), largest(r));
        inputs[r] = (int32_t)x;
    }
}

/* Draw a vector, and compute the taps of its read. */
void random_vector(void) {
    const cim_layer *l = now->layer;
    const cim_group *rows = l->group + now->group;
    draw();
    vector++;
    for (int32_t c = 0; c < l->cycles; c++) {
        const cim_cycle *cycle = l->cycle + c;
        int64_t summed = 0, leaked;
        for (int32_t r = rows->first; r < rows->end; r++) {
            digits[c][r - rows->first] = cim_digit(l, cycle, cim_input(l, inputs, r));
            summed += digits[c][r - rows->first];
        }
        unit[c] = summed;
        leaked = cim_leaked(l, now->group, c, summed);
        for (int32_t k = 0; k < l->slices; k++)
            for (int32_t start = first; start < end; start += CIM_BLOCK) {
                int32_t left = l->columns - start, n = left < CIM_BLOCK ? left : CIM_BLOCK;
                int64_t *own = sums[c][k] + start - first;
                cim_products(weights, l, k, rows, digits[c], start, n, own);
                for (int32_t j = 0; j < n; j++)
                    own[j] = cim_shl(own[j], l->fraction_bits) + leaked;
            }
    }
    for (int32_t start = first; start < end; start += CIM_BLOCK) {
        int32_t left = l->columns - start, n = left < CIM_BLOCK ? left : CIM_BLOCK;
        memset(added + start - first, 0, sizeof *added * CIM_BLOCK);
        cim_row_group(weights, l, now->group, inputs, start, n, added + start - first);
    }
}

/* The input of a row of the group; any number for a row that does not drive. */
int random_input(int row, int own) {
    int32_t from = now->layer->group[now->group].first;
    return own ? inputs[from + row] : drawn_input(from);
}

int random_digit(int row, int cycle) { return digits[cycle][row]; }

static int32_t is_unit(int lane) { return lane == now->lanes->count; }

long long random_sum(int lane, int cycle) {
    if (is_unit(lane))
        return unit[cycle];
    return sums[cycle][now->lanes->slice[lane]][column - first + now->lanes->weight[lane]];
}

long long random_code(int lane, int cycle) {
    const cim_layer *l = now->layer;
    int32_t k = is_unit(lane) ? l->slices : now->lanes->slice[lane];
    const cim_converter *c = l->converter + k * l->reference_cycles + cycle % l->reference_cycles;
    int64_t at = now->group, sum = random_sum(lane, cycle), offset = 0;
    if (c->step == 0)
        return sum;
    if (!is_unit(lane))
        at = at * l->columns + column + now->lanes->weight[lane];
    if (c->offset >= 0)
        offset = CIM_TABLE(int64_t, weights, c->offset)[at];
    return cim_code(c, cim_step(weights, c, at), cim_shl(sum, l->reference_bits) - offset);
}

long long random_added(int weight) { return cim_signed(added[column - first + weight]); }

/* Add what a row group gave to a column's sum for a vector. */
void random_add(int of, int to, long long total) { totals[(size_t)of * LAYER_COLUMNS + (size_t)to] += total; }

/* This sum; the next layer starts at 0. */
long long random_total(int of, int at) {
    int64_t *total = totals + (size_t)of * LAYER_COLUMNS + at, had = *total;
    *total = 0;
    return had;
}

/* The layer's sum as the golden model has it. */
long long random_layer_sum(int of, int at) {
    if (of != summed) {
        int32_t columns = now->layer->columns;
        vector = summed = of;
        draw();
        cim_mvm(weights, now->layer, inputs, 0, columns, layer_sums);
    }
    return layer_sums[at];
}

long long random_requantised(long long x, long long factor, int places, long long lowest, long long highest) {
    return cim_requant(x, factor, places, lowest, highest);
}
