/* Compares the model with what cimtool's simulator computed: every value of every item and pair.
 *
 * expected.bin holds 64-bit integers, the lowest byte first, in the order in which the model makes
 * them: for each text, then each video, its inputs and its values; then those of each pair, or of
 * each text against a gallery that the arrays hold. Fails where nothing was compared, where a count
 * is not the one that was exported, and where a value differs. */
#include "check.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *expected;
static long compared[CHECK_VALUES], differing[CHECK_VALUES];
static long item;

static int64_t next(void) {
    unsigned char bytes[8];
    uint64_t number = 0;
    if (fread(bytes, 1, 8, expected) != 8) {
        fprintf(stderr, "check: expected.bin ends before the model does\n");
        exit(1);
    }
    for (int i = 7; i >= 0; i--)
        number = number << 8 | bytes[i];
    return number <= (uint64_t)INT64_MAX ? (int64_t)number : -(int64_t)(UINT64_MAX - number) - 1;
}

static void see(int value, int32_t place, int64_t found) {
    int64_t right = next();
    compared[value]++;
    if (found == right)
        return;
    if (!differing[value]++)
        fprintf(stderr, "check: %s of item %ld, number %ld: %lld, expected %lld\n",
                check_values[value].name, item, (long)place, (long long)found, (long long)right);
}

#define CIM_SEE(value, count, number)                                                              \
    for (int32_t j = 0; j < (count); j++)                                                          \
    see(value, j, (int64_t)(number))
#include "model.c"

static void *read_whole(const char *name, size_t size) {
    FILE *file = fopen(name, "rb");
    void *content = malloc(size + 1);
    if (!file || !content || fread(content, 1, size + 1, file) != size) {
        fprintf(stderr, "check: %s: expected %lu bytes\n", name, (unsigned long)size);
        exit(1);
    }
    fclose(file);
    return content;
}

/* Encodes every item of the export, then compares every pair, or every text with the gallery. */
static void check_items(const void *weights) {
    static text_item text[TEXT_ROWS];
    for (item = 0; item < TEXT_ROWS; item++) {
        text_code x[TEXT_WIDTH];
        for (int32_t j = 0; j < TEXT_WIDTH; j++)
            x[j] = (text_code)next();
        text_encode(weights, x, &text[item]);
    }
    static video_item video[VIDEO_ROWS];
    for (item = 0; item < VIDEO_ROWS; item++) {
        video_code x[VIDEO_WIDTH];
        for (int32_t j = 0; j < VIDEO_WIDTH; j++)
            x[j] = (video_code)next();
        video_encode(weights, x, &video[item]);
    }
#ifdef MODEL_PAIRS
    for (item = 0; item < (long)TEXT_ROWS * VIDEO_ROWS; item++)
        pair_logit(weights, &text[item / VIDEO_ROWS], &video[item % VIDEO_ROWS]);
#endif
#ifdef MODEL_GALLERY
    for (item = 0; item < TEXT_ROWS; item++) {
        static model_gallery scores[MODEL_GALLERY];
        gallery_scores(weights, &text[item], scores);
    }
#endif
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : ".";
    char name[4096];
    long total = 0, wrong = 0;
    void *weights;
    snprintf(name, sizeof name, "%s/weights.bin", folder);
    weights = read_whole(name, MODEL_WEIGHTS_BYTES);
    snprintf(name, sizeof name, "%s/expected.bin", folder);
    expected = fopen(name, "rb");
    if (!expected) {
        fprintf(stderr, "check: %s: cannot be read\n", name);
        return 1;
    }
    check_items(weights);
    if (fgetc(expected) != EOF) {
        fprintf(stderr, "check: expected.bin goes on after the model ends\n");
        return 1;
    }
    for (int i = 0; i < CHECK_VALUES; i++) {
        printf("%-40s %10ld compared %10ld differ\n", check_values[i].name, compared[i],
               differing[i]);
        if (compared[i] != check_values[i].count) {
            fprintf(stderr, "check: %s: %ld compared, expected %ld\n", check_values[i].name,
                    compared[i], check_values[i].count);
            return 1;
        }
        total += compared[i];
        wrong += differing[i];
    }
    printf("%-40s %10ld compared %10ld differ\n", "all", total, wrong);
    fclose(expected);
    free(weights);
    if (total == 0)
        fprintf(stderr, "check: nothing was compared\n");
    return total == 0 || wrong != 0;
}
