/* The values of the model: the count of numbers to compare, and the place of a value in
 * its item's record of expected.bin (-1 for values of pairs and galleries). */
enum { {{ facts | join(", ") }} };
static const struct {
    const char *name;
    long count, place;
    int of_video;
} check_values[] = {
{{ values | join(",\n") }}};
/* The end-to-end files of taps/: of texts, videos or pairs; the place of a value in its
 * record of expected.bin; and its count of numbers. */
enum { TEXT, VIDEO, PAIR };
static const struct {
    const char *file;
    int of;
    long place, numbers;
} check_taps[] = {
{{ taps | join(",\n") }}};
