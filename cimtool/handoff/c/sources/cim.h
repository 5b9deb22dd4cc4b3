/* The integer contract in C99: what rounds, what converts, and a layer on crossbars.
 *
 * Freestanding: <stdint.h> alone, no allocation, no floating point, and nothing that C99 leaves
 * undefined: no shift of a negative number, no signed overflow. Sums are unsigned and may wrap on
 * the way; cimtool has proved that their final value fits.
 *
 * Units are those of the integer contract: column sums count in 2^-fraction_bits of a digit; steps,
 * offsets and values read by converters in 2^-(fraction_bits + reference_bits). */
#ifndef CIM_H
#define CIM_H
#include <stdint.h>

#ifndef CIM_GROUP_ROWS
#error "define CIM_GROUP_ROWS, the most rows that one conversion sums, as model.c does"
#endif

#ifndef CIM_ITEMS
#define CIM_ITEMS 8 /* items that are encoded at a time: their values lie on the stack */
#endif

enum { CIM_BLOCK = 64 }; /* columns that are computed at a time */

/* The table at byte `place` of the weights, which must be aligned for int64_t. */
#define CIM_TABLE(kind, weights, place) \
    ((const kind *)(const void *)((const unsigned char *)(weights) + (place)))

/* 64 bits, read as two's complement. */
static inline int64_t cim_signed(uint64_t x) {
    return x <= (uint64_t)INT64_MAX ? (int64_t)x : -(int64_t)(UINT64_MAX - x) - 1;
}

/* x * 2^s. */
static inline int64_t cim_shl(int64_t x, int32_t s) { return cim_signed((uint64_t)x << s); }

/* floor(x / 2^s): an arithmetic shift. */
static inline int64_t cim_asr(int64_t x, int32_t s) { return x >= 0 ? x >> s : ~(~x >> s); }

/* floor(x / d) for d > 0. */
static inline int64_t cim_floor(int64_t x, int64_t d) {
    return x >= 0 ? x / d : -1 - (-1 - x) / d;
}

static inline int64_t cim_size(int64_t x) { return x < 0 ? -x : x; }

static inline int64_t cim_clip(int64_t x, int64_t lo, int64_t hi) {
    return x < lo ? lo : x > hi ? hi : x;
}

/* clip((x * m + 2^(s-1)) >> s, lo, hi): halves go up. */
static inline int64_t cim_requant(int64_t x, int64_t m, int32_t s, int64_t lo, int64_t hi) {
    return cim_clip(cim_asr(x * m + ((int64_t)1 << (s - 1)), s), lo, hi);
}

/* The sum of the codes of an item's words, of `cells` cells each: a word's distance from the query, over
 * `step`, at most `top`. A cell of -1 differs from no value; the distance of others is 1 if they differ
 * (0), the levels between them (1), or the square of these (2). */
static inline int64_t cim_search(const int8_t *stored, const int16_t *query, int32_t width,
                                 int32_t cells, int32_t distance, int64_t step, int64_t top) {
    int64_t total = 0;
    for (int32_t first = 0; first < width; first += cells) {
        int64_t sum = 0;
        for (int32_t c = first; c < width && c - first < cells; c++) {
            int64_t apart = stored[c] < 0 ? 0 : cim_size(query[c] - stored[c]);
            sum += distance == 0 ? apart != 0 : distance == 1 ? apart : apart * apart;
        }
        total += sum / step < top ? sum / step : top;
    }
    return total;
}

/* A cycle drives bits `shift` .. `shift + bits - 1` of an input, or all from `shift` if bits is 0.
 * Its sums have the weight sign << shift. */
typedef struct {
    int32_t shift, bits, sign;
} cim_cycle;

/* A slice: the cells that hold one digit of each weight. Its sums have the weight factor << shift. */
typedef struct {
    int32_t shift, factor;
} cim_slice;

/* Rows first .. end - 1 are summed in one conversion. */
typedef struct {
    int32_t first, end;
} cim_group;

typedef enum { CIM_HALF_UP, CIM_HALF_EVEN, CIM_FLOOR, CIM_STAIRCASE } cim_rounding;

/* Codes lo .. hi of a converter. A staircase has hi - lo rising thresholds, in 2^-places of a step,
 * and hi - lo + 1 levels, the value of each code in steps. */
typedef struct {
    cim_rounding rounding;
    int32_t places;
    int64_t lo, hi;
    const int64_t *thresholds, *levels;
} cim_law;

/* The converters of a slice: their law; their step, 0 if lossless, 2^shift unless shift is -1; the
 * place of steps of their own (-1: all have `step`), and of the offsets that are subtracted first
 * (-1: no offsets), int64_t [groups][columns], or [groups] for the unit column. */
typedef struct {
    const cim_law *law;
    int64_t step;
    int32_t shift;
    int64_t steps, offset;
} cim_converter;

/* A layer on crossbars. `cells`, `flipped` and `bias` are places of tables in the weights:
 *   cells    [slices][blocks of CIM_BLOCK columns, the last with the rest][rows][columns of the
 *            block] of int8_t, or of int32_t if `wide`
 *   flipped  [groups][slices][columns] of uint8_t, 1 if a column holds complements, whose values
 *            are negated; -1: none does
 *   bias     [columns] of int64_t, less what `lift` adds to the sums
 *
 * A row group also adds to each output, from tables [groups][columns] of int64_t (-1: nothing):
 *   unit_factors  times the value of the unit column, a column of ones that is converted
 *   row_factors   times the sum of the group's inputs, each with `lift`: for offsets, complements
 *                 and leaks
 *   starts        for any inputs: less what idle rows leak */
typedef struct {
    int32_t rows, columns, slices, groups, cycles;
    int32_t wide, wide_input; /* inputs are int16_t, int32_t where wide_input */
    int32_t sign_magnitude;   /* digits of |x| are driven with the sign of x */
    int32_t reference_cycles; /* converters of a slice, one for each cycle or one for all */
    int32_t fraction_bits, reference_bits;
    int64_t lift; /* added to an input before it is cut into digits */
    int64_t leak; /* what an erased cell conducts, in 2^-fraction_bits of a digit */
    int64_t cells, flipped, unit_factors, row_factors, starts, bias;
    const int64_t *idle_sums; /* [groups][cycles] of every column sum, from idle rows; 0: none */
    const cim_group *group;
    const cim_cycle *cycle;
    const cim_slice *slice;
    const cim_converter *converter; /* [slices, then the unit column][reference_cycles] */
} cim_layer;

/* Input `row` of a layer. */
static inline int64_t cim_input(const cim_layer *l, const void *x, int32_t row) {
    return l->wide_input ? ((const int32_t *)x)[row] : ((const int16_t *)x)[row];
}

/* Tap 1: the digit of an input that a cycle drives. */
static inline int32_t cim_digit(const cim_layer *l, const cim_cycle *c, int64_t x) {
    int64_t whole = x + l->lift;
    int64_t size = l->sign_magnitude ? cim_size(whole) : whole;
    int64_t digit = cim_asr(size, c->shift);
    if (c->bits)
        digit = (int64_t)((uint64_t)digit & (((uint64_t)1 << c->bits) - 1));
    return (int32_t)(l->sign_magnitude && whole < 0 ? -digit : digit);
}

/* Tap 2 without leakage: digits . cells of a slice, for the block of n columns from `first`. */
static inline void cim_products(const void *weights, const cim_layer *l, int32_t slice,
                                const cim_group *rows, const int32_t *digits, int32_t first,
                                int32_t n, int64_t *sums) {
    int64_t start = ((int64_t)slice * l->columns + first) * l->rows + (int64_t)rows->first * n;
    int32_t height = rows->end - rows->first;
    if (l->wide) {
        const int32_t *cells = CIM_TABLE(int32_t, weights, l->cells) + start;
        for (int32_t j = 0; j < n; j++)
            sums[j] = (int64_t)digits[0] * cells[j];
        for (int32_t r = 1; r < height; r++)
            if (digits[r])
                for (int32_t j = 0; j < n; j++)
                    sums[j] += (int64_t)digits[r] * cells[r * n + j];
    } else {
        const int8_t *cells = CIM_TABLE(int8_t, weights, l->cells) + start;
        int32_t narrow[CIM_BLOCK];
        for (int32_t j = 0; j < n; j++)
            narrow[j] = digits[0] * cells[j];
        for (int32_t r = 1; r < height; r++)
            if (digits[r] == 1) /* one bit a cycle: nothing to multiply */
                for (int32_t j = 0; j < n; j++)
                    narrow[j] += cells[r * n + j];
            else if (digits[r])
                for (int32_t j = 0; j < n; j++)
                    narrow[j] += digits[r] * cells[r * n + j];
        for (int32_t j = 0; j < n; j++)
            sums[j] = narrow[j];
    }
}

/* The rest of tap 2: what row group g leaks in cycle c, whose digits add up to `summed`. */
static inline int64_t cim_leaked(const cim_layer *l, int32_t g, int32_t c, int64_t summed) {
    return l->leak * summed + (l->idle_sums ? l->idle_sums[g * l->cycles + c] : 0);
}

/* The step of a converter. `at` is its column's place among steps and offsets. */
static inline int64_t cim_step(const void *weights, const cim_converter *c, int64_t at) {
    return c->steps < 0 ? c->step : CIM_TABLE(int64_t, weights, c->steps)[at];
}

/* Tap 3: the code of a sum p at a converter's step; its offset is already subtracted. */
static inline int64_t cim_code(const cim_converter *c, int64_t step, int64_t p) {
    const cim_law *l = c->law;
    int64_t code, rest;
    if (l->rounding == CIM_STAIRCASE) {
        int64_t below = 0, above = l->hi - l->lo;
        while (below < above) { /* thresholds before `below` are reached, those from `above` not */
            int64_t middle = (below + above) / 2;
            if (l->thresholds[middle] * step <= cim_shl(p, l->places))
                below = middle + 1;
            else
                above = middle;
        }
        return l->lo + below;
    }
    code = c->shift >= 0 ? cim_asr(p, c->shift) : cim_floor(p, step);
    rest = p - code * step;
    if (l->rounding == CIM_HALF_UP)
        code += rest >= step - step / 2;
    else if (l->rounding == CIM_HALF_EVEN)
        code += 2 * rest > step || (2 * rest == step && code % 2 != 0);
    return cim_clip(code, l->lo, l->hi);
}

/* The digital value read for a column sum. `at` is its place among steps and offsets. */
static inline int64_t cim_read(const void *weights, const cim_layer *l, const cim_converter *c,
                               int64_t sum, int64_t at) {
    int64_t p = cim_shl(sum, l->reference_bits), offset = 0, step, code;
    if (c->step == 0)
        return p;
    step = cim_step(weights, c, at);
    if (c->offset >= 0)
        offset = CIM_TABLE(int64_t, weights, c->offset)[at];
    code = cim_code(c, step, p - offset);
    if (c->law->rounding == CIM_STAIRCASE)
        code = c->law->levels[code - c->law->lo];
    return code * step + offset;
}

/* Add `times` a table's numbers for row group g to the sums of the n columns from `first`. */
static inline void cim_add_factors(const void *weights, const cim_layer *l, int64_t table,
                                   int32_t g, int32_t first, int32_t n, uint64_t times,
                                   uint64_t *total) {
    const int64_t *factors;
    if (table < 0)
        return;
    factors = CIM_TABLE(int64_t, weights, table) + (int64_t)g * l->columns + first;
    for (int32_t j = 0; j < n; j++)
        total[j] += (uint64_t)factors[j] * times;
}

/* Tap 4: add row group g's part of the layer's sum, for the n columns from `first`, which is a
 * multiple of CIM_BLOCK; n is CIM_BLOCK, or fewer in the last block. */
static inline void cim_row_group(const void *weights, const cim_layer *l, int32_t g, const void *x,
                                 int32_t first, int32_t n, uint64_t *total) {
    const cim_group *rows = l->group + g;
    int64_t row_sum = 0;
    for (int32_t c = 0; c < l->cycles; c++) {
        const cim_cycle *cycle = l->cycle + c;
        const cim_converter *own = l->converter + c % l->reference_cycles;
        int32_t digits[CIM_GROUP_ROWS];
        int64_t summed = 0, leaked;
        uint64_t factor = (uint64_t)(int64_t)cycle->sign << cycle->shift;
        for (int32_t r = rows->first; r < rows->end; r++) {
            digits[r - rows->first] = cim_digit(l, cycle, cim_input(l, x, r));
            summed += digits[r - rows->first];
        }
        leaked = cim_leaked(l, g, c, summed);
        for (int32_t k = 0; k < l->slices; k++) {
            const cim_slice *slice = l->slice + k;
            const cim_converter *converter = own + k * l->reference_cycles;
            const uint8_t *flipped = 0;
            uint64_t counts = factor * ((uint64_t)(int64_t)slice->factor << slice->shift);
            int64_t sums[CIM_BLOCK];
            if (l->flipped >= 0)
                flipped = CIM_TABLE(uint8_t, weights, l->flipped) +
                          ((int64_t)g * l->slices + k) * l->columns + first;
            cim_products(weights, l, k, rows, digits, first, n, sums);
            for (int32_t j = 0; j < n; j++) {
                int64_t sum = cim_shl(sums[j], l->fraction_bits) + leaked;
                int64_t at = (int64_t)g * l->columns + first + j;
                uint64_t value = counts * (uint64_t)cim_read(weights, l, converter, sum, at);
                total[j] += flipped && flipped[j] ? 0 - value : value;
            }
        }
        if (l->unit_factors >= 0) {
            const cim_converter *unit = own + l->slices * l->reference_cycles;
            uint64_t value = factor * (uint64_t)cim_read(weights, l, unit, summed, g);
            cim_add_factors(weights, l, l->unit_factors, g, first, n, value, total);
        }
    }
    for (int32_t r = rows->first; r < rows->end; r++)
        row_sum += cim_input(l, x, r) + l->lift;
    cim_add_factors(weights, l, l->row_factors, g, first, n, (uint64_t)row_sum, total);
    cim_add_factors(weights, l, l->starts, g, first, n, 1, total);
}

/* Columns first .. first + n - 1 of a layer's output, in whole blocks: all row groups plus the bias. */
static inline void cim_mvm(const void *weights, const cim_layer *l, const void *x, int32_t first,
                           int32_t n, int64_t *out) {
    const int64_t *bias = CIM_TABLE(int64_t, weights, l->bias) + first;
    int32_t places = l->fraction_bits + l->reference_bits;
    for (int32_t start = 0; start < n; start += CIM_BLOCK) {
        int32_t width = n - start < CIM_BLOCK ? n - start : CIM_BLOCK;
        uint64_t total[CIM_BLOCK];
        for (int32_t j = 0; j < width; j++) /* half a digit, so that the sum is rounded half up */
            total[j] = ((uint64_t)1 << places) >> 1;
        for (int32_t g = 0; g < l->groups; g++)
            cim_row_group(weights, l, g, x, first + start, width, total);
        for (int32_t j = 0; j < width; j++)
            out[start + j] = cim_asr(cim_signed(total[j]), places) + bias[start + j];
    }
}

/* 32 bits, read as two's complement. */
static inline int64_t cim_signed32(uint32_t x) {
    return x <= (uint32_t)INT32_MAX ? (int64_t)x : (int64_t)x - ((int64_t)1 << 32);
}

/* Adds the products of weight w of column k with the inputs a, b, c, d of four items. */
#define CIM_ADD(k, w) s##k##0 += w * a, s##k##1 += w * b, s##k##2 += w * c, s##k##3 += w * d

/* Stores the sums of column k, or those of the last column again if there is no column k. */
#define CIM_STORE(k, column)                                                                       \
    out[i][column - first] = s##k##0 + bias[column], out[i + 1][column - first] = s##k##1 + bias[column], \
        out[i + 2][column - first] = s##k##2 + bias[column],                                       \
        out[i + 3][column - first] = s##k##3 + bias[column]

/* The same for a layer whose conversions are all lossless: one integer product of int16_t inputs
 * in[item][rows] and weights [columns][rows], which are int8_t if the name ends in 8, else int16_t.
 * Every partial sum fits 32 bits, in any order. Four columns and four items are computed together,
 * to fill the vector registers; the rest one by one. */
#define CIM_PRODUCT(name, kind)                                                                    \
    static inline void name(const kind *weight, const int64_t *bias, int32_t rows, int32_t items,  \
                            const int16_t *const *in, int32_t first, int32_t n,                    \
                            int64_t *const *out) {                                                 \
        int32_t last = first + n - 1, four = items & ~3;                                           \
        for (int32_t j = first; j <= last; j += 4) {                                               \
            int32_t j1 = j + 1 < last ? j + 1 : last, j2 = j + 2 < last ? j + 2 : last;            \
            int32_t j3 = j + 3 < last ? j + 3 : last;                                              \
            const kind *w0 = weight + (int64_t)j * rows, *w1 = weight + (int64_t)j1 * rows;        \
            const kind *w2 = weight + (int64_t)j2 * rows, *w3 = weight + (int64_t)j3 * rows;       \
            for (int32_t i = 0; i < four; i += 4) {                                                \
                const int16_t *x0 = in[i], *x1 = in[i + 1], *x2 = in[i + 2], *x3 = in[i + 3];      \
                int32_t s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;    \
                int32_t s20 = 0, s21 = 0, s22 = 0, s23 = 0, s30 = 0, s31 = 0, s32 = 0, s33 = 0;    \
                for (int32_t r = 0; r < rows; r++) {                                               \
                    int16_t a = x0[r], b = x1[r], c = x2[r], d = x3[r];                            \
                    int16_t p = w0[r], q = w1[r], u = w2[r], v = w3[r];                            \
                    CIM_ADD(0, p), CIM_ADD(1, q), CIM_ADD(2, u), CIM_ADD(3, v);                    \
                }                                                                                  \
                CIM_STORE(0, j), CIM_STORE(1, j1), CIM_STORE(2, j2), CIM_STORE(3, j3);             \
            }                                                                                      \
        }                                                                                          \
        for (int32_t i = four; i < items; i++)                                                     \
            for (int32_t j = first; j <= last; j++) {                                              \
                const kind *w = weight + (int64_t)j * rows;                                        \
                const int16_t *x = in[i];                                                          \
                int32_t total = 0;                                                                 \
                for (int32_t r = 0; r < rows; r++) {                                               \
                    int16_t a = x[r], b = w[r];                                                    \
                    total += a * b;                                                                \
                }                                                                                  \
                out[i][j - first] = total + bias[j];                                               \
            }                                                                                      \
    }
CIM_PRODUCT(cim_product8, int8_t)
CIM_PRODUCT(cim_product16, int16_t)

/* The same for wider numbers: int32_t inputs and weights, in 64 bits. */
static inline void cim_product32(const int32_t *weight, const int64_t *bias, int32_t rows,
                                 int32_t items, const int32_t *const *in, int32_t first, int32_t n,
                                 int64_t *const *out) {
    for (int32_t j = first; j < first + n; j++) {
        const int32_t *column = weight + (int64_t)j * rows;
        for (int32_t i = 0; i < items; i++) {
            uint64_t total = 0;
            for (int32_t r = 0; r < rows; r++)
                total += (uint64_t)((int64_t)column[r] * in[i][r]);
            out[i][j - first] = cim_signed(total + (uint64_t)bias[j]);
        }
    }
}
#endif
