/* Ranks a gallery of videos for each text with an exported model, without Python.
 *
 *     cimtool export BUNDLE --format handoff -o handoff
 *     cc -std=c99 -O3 -Ihandoff/c rank_a_gallery.c handoff/c/model.c -lm -o rank
 *     ./rank handoff/c/weights.bin texts.f32 videos.f32
 *
 * The files of embeddings are rows of float32 and nothing else (numpy: rows.tofile). Prints the
 * five best videos of each text, the best first, with their integer scores. */
#include "model.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BEST = 5 };

/* The whole content of a file, which the caller frees; its size in `size`. */
static void *whole(const char *name, size_t *size) {
    FILE *file = fopen(name, "rb");
    void *content = 0;
    long end = -1;
    if (file && fseek(file, 0, SEEK_END) == 0 && (end = ftell(file)) > 0) {
        rewind(file);
        content = malloc((size_t)end);
        if (content && fread(content, 1, (size_t)end, file) != (size_t)end) {
            free(content);
            content = 0;
        }
    }
    if (file)
        fclose(file);
    if (!content) {
        fprintf(stderr, "rank: %s: cannot be read\n", name);
        exit(2);
    }
    *size = (size_t)end;
    return content;
}

/* Rows of float32 of so many numbers each; how many there are in `count`. */
static float *rows_of(const char *name, size_t width, size_t *count) {
    size_t size;
    float *rows = whole(name, &size);
    if (size % (width * sizeof(float))) {
        fprintf(stderr, "rank: %s: %lu bytes; expected rows of %lu float32\n", name,
                (unsigned long)size, (unsigned long)width);
        exit(2);
    }
    *count = size / (width * sizeof(float));
    return rows;
}

/* The code of a number: over its unit, rounded half to even (as C rounds unless told otherwise). */
static int32_t code(float number, float unit, float lo, float hi) {
    float steps = rintf(number / unit);
    return (int32_t)(steps < lo ? lo : steps > hi ? hi : steps);
}

int main(int argc, char **argv) {
    static const float text_units[] = TEXT_UNITS, video_units[] = VIDEO_UNITS;
    size_t size, texts, videos;
    void *weights;
    float *text_rows, *video_rows;
    video_item *gallery;
    if (argc != 4) {
        fprintf(stderr, "usage: rank weights.bin texts.f32 videos.f32\n");
        return 2;
    }
    weights = whole(argv[1], &size);
    if (size != MODEL_WEIGHTS_BYTES) {
        fprintf(stderr, "rank: %s: %lu bytes; expected %lu, those of this model\n", argv[1],
                (unsigned long)size, (unsigned long)MODEL_WEIGHTS_BYTES);
        return 2;
    }
    text_rows = rows_of(argv[2], TEXT_WIDTH, &texts);
    video_rows = rows_of(argv[3], VIDEO_WIDTH, &videos);
    gallery = malloc(videos * sizeof *gallery);
    if (!gallery)
        return 2;
    for (size_t i = 0; i < videos; i++) {
        video_code x[VIDEO_WIDTH];
        for (int j = 0; j < VIDEO_WIDTH; j++)
            x[j] = (video_code)code(video_rows[i * VIDEO_WIDTH + (size_t)j], video_units[j],
                                    VIDEO_LO, VIDEO_HI);
        video_encode(weights, x, &gallery[i], 1);
    }
    for (size_t i = 0; i < texts; i++) {
        text_code x[TEXT_WIDTH];
        text_item text;
        size_t best[BEST];
        int32_t score[BEST];
        int held = 0;
        for (int j = 0; j < TEXT_WIDTH; j++)
            x[j] = (text_code)code(text_rows[i * TEXT_WIDTH + (size_t)j], text_units[j],
                                   TEXT_LO, TEXT_HI);
        text_encode(weights, x, &text, 1);
        for (size_t v = 0; v < videos; v++) {
            int32_t found = pair_logit(weights, &text, &gallery[v]);
            int place = held < BEST ? held++ : BEST;
            for (; place > 0 && score[place - 1] < found; place--)
                if (place < BEST) {
                    score[place] = score[place - 1];
                    best[place] = best[place - 1];
                }
            if (place < BEST) {
                score[place] = found;
                best[place] = v;
            }
        }
        printf("text %lu:", (unsigned long)i);
        for (int place = 0; place < held; place++)
            printf(" %lu (%ld)", (unsigned long)best[place], (long)score[place]);
        printf("\n");
    }
    free(gallery);
    free(video_rows);
    free(text_rows);
    free(weights);
    return 0;
}
