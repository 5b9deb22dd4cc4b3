/* Compares the model with what cimtool's simulator computed: every value of every item and pair.
 *
 * expected.bin holds 64-bit integers, the lowest byte first: for each text, then each video, its
 * inputs and its values; then, in the order in which the model makes them, those of each pair, or of
 * each text against a gallery that the arrays hold. With the folder of taps as second argument, the
 * end-to-end taps are compared too. Fails if a value differs, if the number of values is not the
 * exported one, or if nothing was compared. */
#include "check.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static const unsigned char *expected;
static long compared[CHECK_VALUES], differing[CHECK_VALUES];
static long at; /* the number of expected.bin that comes next, behind those of items */

static void see(int value, const void *item, int32_t place, int64_t found);

#define CIM_SEE(value, item, count, number)                                                        \
    for (int32_t j = 0; j < (count); j++)                                                          \
    see(value, item, j, (int64_t)(number))
#include "model.c"

static text_item text[TEXT_ROWS];
static video_item video[VIDEO_ROWS];

static int64_t expected_at(long place) {
    uint64_t number = 0;
    if (place >= CHECK_NUMBERS) {
        fprintf(stderr, "check: expected.bin ends before the model does\n");
        exit(1);
    }
    for (int i = 7; i >= 0; i--)
        number = number << 8 | expected[8 * place + i];
    return cim_signed(number);
}

/* The start of an item's record: texts come first, then videos. */
static long record(int of_video, long row) {
    return of_video ? (long)TEXT_ROWS * TEXT_RECORD + row * VIDEO_RECORD : row * TEXT_RECORD;
}

static void see(int value, const void *item, int32_t place, int64_t found) {
    long row = -1, where;
    int64_t right;
    if (check_values[value].place < 0) {
        where = at++;
    } else {
        int of_video = check_values[value].of_video;
        row = of_video ? (long)((const video_item *)item - video)
                       : (long)((const text_item *)item - text);
        where = record(of_video, row) + check_values[value].place + place;
    }
    right = expected_at(where);
    compared[value]++;
    if (found == right)
        return;
    if (!differing[value]++)
        fprintf(stderr, "check: %s, item %ld, number %ld: %lld, expected %lld\n",
                check_values[value].name, row, (long)place, (long long)found, (long long)right);
}

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
    static text_code of_text[TEXT_ROWS * TEXT_WIDTH];
    static video_code of_video[VIDEO_ROWS * VIDEO_WIDTH];
    for (long i = 0; i < TEXT_ROWS; i++)
        for (int32_t j = 0; j < TEXT_WIDTH; j++)
            of_text[i * TEXT_WIDTH + j] = (text_code)expected_at(record(0, i) + j);
    for (long i = 0; i < VIDEO_ROWS; i++)
        for (int32_t j = 0; j < VIDEO_WIDTH; j++)
            of_video[i * VIDEO_WIDTH + j] = (video_code)expected_at(record(1, i) + j);
    text_encode(weights, of_text, text, TEXT_ROWS);
    video_encode(weights, of_video, video, VIDEO_ROWS);
    at = record(1, VIDEO_ROWS);
#ifdef MODEL_PAIRS
    for (long i = 0; i < (long)TEXT_ROWS * VIDEO_ROWS; i++)
        pair_logit(weights, &text[i / VIDEO_ROWS], &video[i % VIDEO_ROWS]);
#endif
#ifdef MODEL_GALLERY
    for (long i = 0; i < TEXT_ROWS; i++) {
        static model_gallery scores[MODEL_GALLERY];
        gallery_scores(weights, &text[i], scores);
    }
#endif
}

/* Compares a file of taps, one number of 16 digits per line, with the model's values. */
static long check_tap(const char *folder, int tap, long *wrong) {
    static const long base[] = {0, (long)TEXT_ROWS * TEXT_RECORD,
                                (long)TEXT_ROWS * TEXT_RECORD + (long)VIDEO_ROWS * VIDEO_RECORD};
    static const long of_one[] = {TEXT_RECORD, VIDEO_RECORD, PAIR_RECORD};
    static const long rows[] = {TEXT_ROWS, VIDEO_ROWS, PAIR_ROWS};
    const int of = check_taps[tap].of;
    const long numbers = check_taps[tap].numbers, lines = rows[of] * numbers;
    char name[4096], line[32], *end;
    int differs = 0;
    long k;
    FILE *file;
    snprintf(name, sizeof name, "%s/%s", folder, check_taps[tap].file);
    file = fopen(name, "r");
    for (k = 0; file && fgets(line, sizeof line, file); k++) {
        const long where = base[of] + k / numbers * of_one[of] + check_taps[tap].place + k % numbers;
        const int64_t found = cim_signed((uint64_t)strtoull(line, &end, 16));
        if (k >= lines || end != line + 16 || *end != '\n' || found != expected_at(where)) {
            fprintf(stderr, "check: %s: line %ld is not what the model shows\n", name, k + 1);
            differs = 1;
            break;
        }
    }
    if (!differs && k < lines) {
        fprintf(stderr, "check: %s: expected %ld lines that the model shows\n", name, lines);
        differs = 1;
    }
    if (file)
        fclose(file);
    printf("taps/%-35s %10ld compared %10d differ\n", check_taps[tap].file, k, differs);
    *wrong += differs;
    return k;
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : ".";
    char name[4096];
    long total = 0, wrong = 0;
    void *weights, *numbers;
    snprintf(name, sizeof name, "%s/weights.bin", folder);
    weights = read_whole(name, MODEL_WEIGHTS_BYTES);
    snprintf(name, sizeof name, "%s/expected.bin", folder);
    numbers = read_whole(name, 8 * (size_t)CHECK_NUMBERS);
    expected = numbers;
    check_items(weights);
    if (at != CHECK_NUMBERS) {
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
    for (int i = 0; argc > 2 && i < CHECK_TAPS; i++)
        total += check_tap(argv[2], i, &wrong);
    printf("%-40s %10ld compared %10ld differ\n", "all", total, wrong);
    free(numbers);
    free(weights);
    if (total == 0)
        fprintf(stderr, "check: nothing was compared\n");
    return total == 0 || wrong != 0;
}
