/* The values of the model, how many numbers of each are compared, and the place of an
 * item's in its record of expected.bin: -1 for values of pairs and galleries. */
enum { {{ facts | join(", ") }} };
static const struct {
    const char *name;
    long count, place;
    int of_video;
} check_values[] = {
{{ values | join(",\n") }}};
/* The files of taps/ from end to end: of which items or of pairs, the place of a value
 * in its record of expected.bin, and how many numbers it has. */
enum { TEXT, VIDEO, PAIR };
static const struct {
    const char *file;
    int of;
    long place, numbers;
} check_taps[] = {
{{ taps | join(",\n") }}};
