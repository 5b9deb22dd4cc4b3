// Runs one macro through every array of its kind in a hand-off folder and compares it at the taps.
//
//   +HANDOFF=DIR   the folder (.)
//   +FAULT=N       a fault of the sources that `make mutants` writes (0: none)
//
// The macro is programmed with each array in turn, word line by word line, like a chip.
module tb_macro;
`include "parameters.svh"
    localparam int CONVERTED = LANES + 32'(UNIT_COLUMN);
    localparam int REFERENCES = SLICES + 32'(UNIT_COLUMN);
    localparam int LINE = (LANES + BESIDE) * CELLS * CELL_BITS;
    localparam int TAPS = 8;

    int fault = 0;
    logic clk = 1'b0;
    always #5 clk = ~clk;

    logic rst = 1'b1, write = 1'b0, start = 1'b0, done, tap_valid;
    logic [$clog2(ROWS)-1:0] write_row = '0;
    logic [LINE-1:0] write_data = '0;
    logic sign_magnitude = 1'b0;
    logic signed [INPUT_BITS:0] lift = '0;
    logic [5:0] cycles = 6'd1, cycle;
    logic [CYCLES*5-1:0] cycle_shift = '0, cycle_bits = '0;
    logic [CYCLES-1:0] cycle_negative = '0;
    logic [SLICES*6-1:0] slice_shift = '0;
    logic [SLICES-1:0] slice_negative = '0;
    logic [SLICES*16-1:0] slice_factor = '0;
    logic signed [CODE_BITS-1:0] lo = '0, hi = '0;
    logic signed [ACC_BITS-1:0] complement = '0, weight_offset = '0;
    logic [ROWS-1:0] row_enable = '0, idle = '0;
    logic [LANES-1:0] flipped = '0;
    logic [REFERENCES*STEP_BITS-1:0] step;
    logic [CONVERTED*FINE_BITS-1:0] offset;
    logic [REFERENCES*THRESHOLDS*FINE_BITS-1:0] thresholds;
    logic [REFERENCES*(THRESHOLDS+1)*FINE_BITS-1:0] levels;
    logic [ROWS*INPUT_BITS-1:0] x = '0;
    logic [WEIGHTS*ACC_BITS-1:0] acc;
    logic [ROWS*DIGIT_LANE-1:0] tap_digits;
    logic [CONVERTED*SUM_BITS-1:0] tap_sums;
    logic [CONVERTED*CODE_BITS-1:0] tap_codes;
    cim_macro #(
        .ROWS(ROWS), .WEIGHTS(WEIGHTS), .SLICES(SLICES), .SLICE_MAJOR(SLICE_MAJOR), .POLARITIES(POLARITIES),
        .CELLS(CELLS), .NEGATIVE_FIRST(NEGATIVE_FIRST), .CELL_BITS(CELL_BITS), .SIGNED_CELLS(SIGNED_CELLS),
        .MULTIPLIES(MULTIPLIES), .UNIT_COLUMN(UNIT_COLUMN),
        .REFERENCE_COLUMN(REFERENCE_COLUMN), .BESIDE(BESIDE), .INPUT_BITS(INPUT_BITS), .DIGIT_BITS(DIGIT_BITS), .DIGIT_LANE(DIGIT_LANE),
        .CYCLES(CYCLES), .SUM_BITS(SUM_BITS), .FRACTION_BITS(FRACTION_BITS), .LEAK(LEAK), .CONVERTER(CONVERTER),
        .ROUNDING(ROUNDING), .REFERENCE_BITS(REFERENCE_BITS), .STEP_BITS(STEP_BITS), .FINE_BITS(FINE_BITS),
        .CODE_BITS(CODE_BITS), .THRESHOLDS(THRESHOLDS), .ACC_BITS(ACC_BITS)
    ) macro (.*);

    logic signed [ACC_BITS-1:0] o_total = '0;
    logic signed [LAYER_BITS-1:0] o_bias = '0, o_sum, o_x = '0;
    logic [30:0] o_multiplier = '0;
    logic [5:0] o_shift = 6'd1;
    logic signed [OUT_BITS-1:0] o_lo = '0, o_hi = '0, o_y;
    cim_output #(
        .ACC_BITS(ACC_BITS), .PLACES(FRACTION_BITS + REFERENCE_BITS), .SUM_BITS(LAYER_BITS), .OUT_BITS(OUT_BITS)
    ) output_unit (
        .clk, .total(o_total), .bias(o_bias), .x(o_x), .multiplier(o_multiplier), .shift(o_shift), .lo(o_lo),
        .hi(o_hi), .sum(o_sum), .y(o_y)
    );

    // The references of each cycle, if each has its own; the macro sees those of its current cycle.
    int own_cycles = 1;
    logic [CYCLES*REFERENCES*STEP_BITS-1:0] steps = '0;
    logic [CYCLES*CONVERTED*FINE_BITS-1:0] offsets = '0;
    logic [CYCLES*REFERENCES*THRESHOLDS*FINE_BITS-1:0] all_thresholds = '0;
    logic [CYCLES*REFERENCES*(THRESHOLDS+1)*FINE_BITS-1:0] all_levels = '0;
    logic [31:0] own;
    assign own = (own_cycles == 1) ? 32'd0 : 32'(cycle);
    assign step = steps[own*REFERENCES*STEP_BITS +: REFERENCES*STEP_BITS];
    assign offset = offsets[own*CONVERTED*FINE_BITS +: CONVERTED*FINE_BITS];
    assign thresholds = all_thresholds[own*REFERENCES*THRESHOLDS*FINE_BITS +: REFERENCES*THRESHOLDS*FINE_BITS];
    assign levels = all_levels[own*REFERENCES*(THRESHOLDS+1)*FINE_BITS +: REFERENCES*(THRESHOLDS+1)*FINE_BITS];

    // The content of the files of a layer, an array and a read; a number has 64 bits.
    logic [WORD_BITS-1:0] words [0:WORD_LINES*WORDS-1];
    logic [ROWS*INPUT_BITS-1:0] inputs [0:VECTORS-1];
    logic [ROWS*DIGIT_LANE-1:0] want_digits [0:VECTORS*CYCLES-1];
    logic [CONVERTED*SUM_BITS-1:0] want_sums [0:VECTORS*CYCLES-1];
    logic [CONVERTED*CODE_BITS-1:0] want_codes [0:VECTORS*CYCLES-1];
    logic [WEIGHTS*64-1:0] want_acc [0:VECTORS-1];
    logic [CONVERTED*64-1:0] given_offsets [0:CYCLES-1];
    logic signed [63:0] given_steps [0:CYCLES*REFERENCES-1];
    logic signed [63:0] given_thresholds [0:CYCLES*REFERENCES*THRESHOLDS-1];
    logic signed [63:0] given_levels [0:CYCLES*REFERENCES*(THRESHOLDS+1)-1];
    logic signed [63:0] bias [0:WIDTH-1], multiplier [0:WIDTH-1], shift [0:WIDTH-1], least [0:WIDTH-1], most [0:WIDTH-1];
    logic signed [63:0] directed_in [0:DIRECTED*WIDTH-1], directed_out [0:DIRECTED*WIDTH-1];
    logic signed [63:0] affine [0:4*STAGES*WIDTH-1];
    logic signed [63:0] layer_sums [0:VECTORS*WIDTH-1], want_sum [0:VECTORS*WIDTH-1], want_out [0:VECTORS*WIDTH-1];
    logic signed [ACC_BITS-1:0] totals [0:VECTORS*WIDTH-1];

    // Values compared and values that differ, at each tap.
    longint compared [0:TAPS-1], differ [0:TAPS-1];
    task automatic count(input int tap, input longint values, input longint wrong);
        longint had;
        had = compared[tap];
        compared[tap] = had + values;
        had = differ[tap];
        differ[tap] = had + wrong;
        if (wrong != 0 && fault != 0) begin
            $display("fault %0d: found at %s", fault, tap_name((tap == 6) ? 5 : tap));
            $finish;
        end
    endtask

    // The lanes that hold weights, and their number; other lanes are not compared.
    logic [CONVERTED-1:0] used = '0;
    int used_lanes = 0;
    task automatic use_weights(input int weights);
        int weight;
        used_lanes = 0;
        for (int l = 0; l < CONVERTED; l++) begin
            weight = SLICE_MAJOR ? l / POLARITIES % WEIGHTS : l / SLICES;
            used[l] = l == LANES || weight < weights;
            if (l == LANES || weight < weights) used_lanes = used_lanes + 1;
        end
    endtask

    task automatic compare_cycle(input int index);
        longint wrong;
        logic [DIGIT_LANE-1:0] digit;
        logic [SUM_BITS-1:0] sum;
        logic [CODE_BITS-1:0] code;
        wrong = 0;
        if (tap_digits !== want_digits[index])
            for (int r = 0; r < ROWS; r++) begin
                digit = want_digits[index][r*DIGIT_LANE +: DIGIT_LANE];
                if (tap_digits[r*DIGIT_LANE +: DIGIT_LANE] !== digit) wrong = wrong + 1;
            end
        count(0, longint'(ROWS), wrong);
        wrong = 0;
        if (tap_sums !== want_sums[index])
            for (int l = 0; l < CONVERTED; l++) begin
                sum = want_sums[index][l*SUM_BITS +: SUM_BITS];
                if (used[l] && tap_sums[l*SUM_BITS +: SUM_BITS] !== sum) wrong = wrong + 1;
            end
        count(1, longint'(used_lanes), wrong);
        wrong = 0;
        if (tap_codes !== want_codes[index])
            for (int l = 0; l < CONVERTED; l++) begin
                code = want_codes[index][l*CODE_BITS +: CODE_BITS];
                if (used[l] && tap_codes[l*CODE_BITS +: CODE_BITS] !== code) wrong = wrong + 1;
            end
        count(2, longint'(used_lanes), wrong);
    endtask

    string handoff, keyword, name, array, group, across, after, value_name;
    logic other; // the layer is of another kind
    int file, flags, got;
    int columns, vectors, stages, code_kind, threshold_places, has_flags;
    int a, b, c, d, e, f;
    longint u, v;
    logic bit_of;

    // References of a layer's converters. A lossless one of equal steps has a step of one digit.
    task automatic load_references;
        longint width, scaled;
        int place;
        steps = '0; all_thresholds = '0; all_levels = '0;
        if (code_kind != 0)
            $readmemh({handoff, "/constants/", name, "/steps.hex"}, given_steps, 0, own_cycles * REFERENCES - 1);
        if (code_kind >= 2) begin
            place = (code_kind == 2) ? 1 : own_cycles * REFERENCES;
            $readmemh({handoff, "/constants/", name, "/thresholds.hex"}, given_thresholds, 0, place * THRESHOLDS - 1);
            $readmemh({handoff, "/constants/", name, "/levels.hex"}, given_levels, 0, place * (THRESHOLDS + 1) - 1);
        end
        for (int s = 0; code_kind != 0 && s < REFERENCES; s++)
            for (int t = 0; t < own_cycles; t++) begin
                width = given_steps[s*own_cycles + t];
                if (width == 0 && code_kind == 1) width = 64'sd1 <<< REFERENCE_BITS;
                steps[(t*REFERENCES + s)*STEP_BITS +: STEP_BITS] = STEP_BITS'(width);
                place = (code_kind == 2) ? 0 : s*own_cycles + t;
                if (code_kind >= 2) begin
                    for (int m = 0; m < THRESHOLDS; m++) begin
                        // Reached if sum << places >= threshold * step.
                        scaled = given_thresholds[place*THRESHOLDS + m] * width + (64'sd1 <<< threshold_places) - 64'sd1;
                        scaled = scaled >>> threshold_places;
                        all_thresholds[((t*REFERENCES + s)*THRESHOLDS + m)*FINE_BITS +: FINE_BITS] = FINE_BITS'(scaled);
                    end
                    for (int m = 0; m <= THRESHOLDS; m++) begin
                        scaled = given_levels[place*(THRESHOLDS+1) + m] * width;
                        all_levels[((t*REFERENCES + s)*(THRESHOLDS+1) + m)*FINE_BITS +: FINE_BITS] = FINE_BITS'(scaled);
                    end
                end
            end
    endtask

    // A line of words of `width` bits in the order of columns; `place` bits belong together.
    localparam int LINE_BITS = WORDS * WORD_BITS;
    function automatic logic [LINE_BITS-1:0] in_columns(input logic [LINE_BITS-1:0] given, input int width, input int place);
        logic [LINE_BITS-1:0] found;
        int at;
        found = given;
        for (int i = 0; MSB_FIRST && i < LINE_BITS; i++) begin
            at = i / place * place + place - 1 - i % place;
            found[i] = given[at / width * width + width - 1 - at % width];
        end
        in_columns = found;
    endfunction
    function automatic logic [LINE-1:0] word_line(input int line);
        logic [LINE_BITS-1:0] given;
        int at;
        at = DESCENDING ? WORD_LINES - 1 - line : line;
        for (int w = 0; w < WORDS; w++) given[w*WORD_BITS +: WORD_BITS] = words[at*WORDS + w];
        word_line = LINE'(in_columns(given, WORD_BITS, CELL_BITS));
    endfunction

    // A pair in two word lines is written at once: in a column its cells are side by side.
    task automatic program_array;
        logic [LINE-1:0] of_line, row;
        if (BINARY) $readmemb({handoff, "/images/", array, "/cells.bin"}, words, 0, WORD_LINES * WORDS - 1);
        else $readmemh({handoff, "/images/", array, "/cells.hex"}, words, 0, WORD_LINES * WORDS - 1);
        for (int r = 0; r < ROWS; r++) begin
            row = word_line(r * HEIGHT);
            if (HEIGHT == 2)
                for (int second = 0; second < 2; second++) begin
                    of_line = word_line(r * 2 + second);
                    for (int j = 0; j < LINE / (2 * CELL_BITS); j++)
                        row[(j*2 + second)*CELL_BITS +: CELL_BITS] = of_line[j*CELL_BITS +: CELL_BITS];
                end
            @(negedge clk);
            write = 1'b1; write_row = $clog2(ROWS)'(r); write_data = row;
        end
        @(negedge clk) write = 1'b0;
    endtask

    // The flags of the next row group.
    task automatic read_flags;
        logic [FLAG_BITS-1:0] word;
        logic [LINE_BITS-1:0] given;
        int scanned;
        given = '0;
        for (int w = 0; w < FLAG_WORDS; w++) begin
            if (BINARY) scanned = $fscanf(flags, "%b", word);
            else scanned = $fscanf(flags, "%h", word);
            if (scanned != 1) $fatal(1, "FAIL: flipped of %s has no line for %s", array, group);
            given[w*FLAG_BITS +: FLAG_BITS] = word;
        end
        flipped = LANES'(in_columns(given, FLAG_BITS, 1));
    endtask

    // One row group of an array: rows first to stop - 1, then idle rows.
    task automatic read_group(input int first, input int stop, input int unused, input int column, input int end_column);
        offsets = '0;
        if (SET_REFERENCES) begin
            $readmemh({handoff, "/constants/", array, "/", group, ".offsets.hex"}, given_offsets, 0, own_cycles - 1);
            for (int t = 0; t < own_cycles; t++)
                for (int l = 0; l < CONVERTED; l++)
                    offsets[(t*CONVERTED + l)*FINE_BITS +: FINE_BITS] = given_offsets[t][l*64 +: FINE_BITS];
        end
        for (int r = 0; r < ROWS; r++) begin
            row_enable[r] = r >= first && r < stop;
            idle[r] = r >= stop && r < stop + unused;
        end
        use_weights(end_column - column);
        drive_group(column, end_column);
    endtask

    // Drives the vectors of `inputs` and compares the taps.
    task automatic drive_vectors(input int column, input int end_column);
        int index;
        for (int n = 0; n < vectors; n++) begin
            @(negedge clk);
            x = inputs[n]; start = 1'b1;
            @(negedge clk) start = 1'b0;
            index = n * 32'(cycles);
            while (!done) begin
                if (tap_valid) begin
                    compare_cycle(index);
                    index++;
                end
                @(negedge clk);
            end
            if (index != (n + 1) * 32'(cycles)) $fatal(1, "FAIL %s/%s: %0d cycles, not %0d", array, group, index - n * 32'(cycles), cycles);
            for (int w = 0; w < end_column - column; w++) begin
                want_whole = want_acc[n][w*64 +: 64];
                whole = 64'($signed(acc[w*ACC_BITS +: ACC_BITS]));
                count(3, 64'd1, (whole === want_whole) ? 64'd0 : 64'd1);
                sum_before = totals[n*WIDTH + column + w];
                totals[n*WIDTH + column + w] = sum_before + ACC_BITS'(whole);
            end
        end
    endtask
    logic signed [63:0] want_whole, whole;
    logic signed [ACC_BITS-1:0] sum_before;

`ifdef RANDOM
`include "tb_random.svh"
`else
`include "tb_converter.svh"
    localparam int SHOWN = TAPS, NEEDED = 5; // taps shown; each of the first NEEDED must compare something

    // The vectors of a read are those of taps/.
    task automatic drive_group(input int column, input int end_column);
        string base, shared_base;
        base = {handoff, "/taps/", array, "/", group};
        shared_base = {handoff, "/taps/", across, "/", group};
        $readmemh({shared_base, ".inputs.hex"}, inputs, 0, vectors - 1);
        $readmemh({shared_base, ".digits.hex"}, want_digits, 0, vectors * 32'(cycles) - 1);
        $readmemh({base, ".sums.hex"}, want_sums, 0, vectors * 32'(cycles) - 1);
        $readmemh({base, ".codes.hex"}, want_codes, 0, vectors * 32'(cycles) - 1);
        $readmemh({base, ".shift_add.hex"}, want_acc, 0, vectors - 1);
        drive_vectors(column, end_column);
    endtask

    // Compares the layer's sums over all row groups.
    task automatic sum_layer;
        if (code_kind != 0) direct_converter;
        $readmemh({handoff, "/constants/", name, "/bias.hex"}, bias, 0, columns - 1);
        $readmemh({handoff, "/taps/", name, "/layer_sum.hex"}, want_sum, 0, vectors * columns - 1);
        for (int n = 0; n < vectors; n++)
            for (int j = 0; j < columns; j++) begin
                @(negedge clk);
                o_total = totals[n*WIDTH + j];
                totals[n*WIDTH + j] = '0;
                o_bias = LAYER_BITS'(bias[j]);
                @(negedge clk);
                layer_sums[n*WIDTH + j] = 64'(o_sum);
                count(4, 64'd1, (64'(o_sum) === want_sum[n*columns + j]) ? 64'd0 : 64'd1);
            end
    endtask

    // Requantises these sums, and compares the results.
    task automatic requantise;
        string base;
        logic signed [63:0] value;
        base = {handoff, "/constants/", after};
        $readmemh({base, "/multiplier.hex"}, multiplier, 0, columns - 1);
        $readmemh({base, "/shift.hex"}, shift, 0, columns - 1);
        $readmemh({base, "/lo.hex"}, least, 0, columns - 1);
        $readmemh({base, "/hi.hex"}, most, 0, columns - 1);
        if (stages != 0) $readmemh({base, "/affine.hex"}, affine, 0, 4 * stages * columns - 1);
        $readmemh({handoff, "/taps/", after, "/requantised.hex"}, want_out, 0, vectors * columns - 1);
        for (int n = 0; n < vectors; n++)
            for (int j = 0; j < columns; j++) begin
                value = layer_sums[n*WIDTH + j];
                for (int s = 0; s < stages; s++) begin
                    value = value * affine[(s*columns + j)*4] + affine[(s*columns + j)*4 + 1];
                    if (value < affine[(s*columns + j)*4 + 2]) value = affine[(s*columns + j)*4 + 2];
                    if (value > affine[(s*columns + j)*4 + 3]) value = affine[(s*columns + j)*4 + 3];
                end
                @(negedge clk);
                o_x = LAYER_BITS'(value);
                o_multiplier = 31'(multiplier[j]); o_shift = 6'(shift[j]);
                o_lo = OUT_BITS'(least[j]); o_hi = OUT_BITS'(most[j]);
                @(negedge clk);
                count(5, 64'd1, (64'(o_y) === want_out[n*columns + j]) ? 64'd0 : 64'd1);
            end
        direct_requantiser;
    endtask

    // Numbers next to the requantiser's thresholds, DIRECTED per column.
    task automatic direct_requantiser;
        string base;
        base = {handoff, "/directed/", after, "/requantiser_"};
        $readmemh({base, "in.hex"}, directed_in, 0, DIRECTED * columns - 1);
        $readmemh({base, "out.hex"}, directed_out, 0, DIRECTED * columns - 1);
        for (int n = 0; n < DIRECTED; n++)
            for (int j = 0; j < columns; j++) begin
                @(negedge clk);
                o_x = LAYER_BITS'(directed_in[n*columns + j]);
                o_multiplier = 31'(multiplier[j]); o_shift = 6'(shift[j]);
                o_lo = OUT_BITS'(least[j]); o_hi = OUT_BITS'(most[j]);
                @(negedge clk);
                count(6, 64'd1, (64'(o_y) === directed_out[n*columns + j]) ? 64'd0 : 64'd1);
            end
    endtask
`endif

    // The rest of a line of steps.txt.
    task automatic skip_line;
        logic [7:0] letter;
        int taken;
        taken = $fscanf(file, "%c", letter);
        while (taken == 1 && letter != "\n") taken = $fscanf(file, "%c", letter);
    endtask

    longint wrong;
    initial begin
        if (!$value$plusargs("HANDOFF=%s", handoff)) handoff = ".";
        if (!$value$plusargs("FAULT=%d", fault)) fault = 0;
        for (int t = 0; t < TAPS; t++) begin compared[t] = 0; differ[t] = 0; end
        for (int t = 0; t < VECTORS*WIDTH; t++) totals[t] = '0;
        repeat (4) @(negedge clk);
        rst = 1'b0;
        file = $fopen({handoff, "/steps.txt"}, "r");
        if (file == 0) $fatal(1, "FAIL: no %s/steps.txt", handoff);
        keyword = ""; other = 1'b0; flags = 0; has_flags = 0; threshold_places = 0; code_kind = 0;
        while (keyword != "end") begin
            got = $fscanf(file, "%s", keyword);
            if (got != 1) $fatal(1, "FAIL: steps.txt has no end");
            if (keyword == "layer" || keyword == "end") other = 1'b0;
            if (other) begin
                skip_line;
                got = 0;
            end else if (keyword == "handoff") got = $fscanf(file, "%d", a) - 1;
            else if (keyword == "array") got = $fscanf(file, "%d %d", a, b) - 2;
            else if (keyword == "lanes") got = $fscanf(file, "%d %d %d", a, b, c) - 3;
            else if (keyword == "layer") begin
                got = $fscanf(file, "%s %d %d %d %d %d %d %d", name, a, b, columns, vectors, c, d, e) - 8;
                cycles = 6'(e);
                other = a != KIND;
            end else if (keyword == "cells") begin
                got = $fscanf(file, "%s %d %d %d %d %d %d %d", name, a, b, c, d, e, u, v) - 8;
                complement = ACC_BITS'(u); weight_offset = ACC_BITS'(v);
                got = got + $fscanf(file, "%d %d %d %d", a, b, has_flags, c) - 4;
            end else if (keyword == "inputs") begin
                got = $fscanf(file, "%s %d %d %d", name, a, b, c) - 4;
                lift = (INPUT_BITS+1)'(b); sign_magnitude = c != 0;
            end else if (keyword == "converter") begin
                got = $fscanf(file, "%s %d %d %d %d %d %d", name, code_kind, a, b, c, d, e) - 7;
                got = got + $fscanf(file, "%d %d %d", threshold_places, own_cycles, f) - 3;
                lo = CODE_BITS'(a); hi = CODE_BITS'(b);
                load_references();
            end else if (keyword == "slice") begin
                got = $fscanf(file, "%s %d %d %d %d %d", name, a, b, c, d, e) - 6;
                slice_shift[a*6 +: 6] = 6'(b);
                slice_factor[a*16 +: 16] = 16'(e);
                bit_of = c < 0;
                slice_negative[a] = bit_of;
            end else if (keyword == "cycle") begin
                got = $fscanf(file, "%s %d %d %d %d %d", name, a, b, c, d, e) - 6;
                cycle_shift[a*5 +: 5] = 5'(b); cycle_bits[a*5 +: 5] = 5'(c);
                bit_of = d < 0;
                cycle_negative[a] = bit_of;
            end else if (keyword == "program") begin
                got = $fscanf(file, "%s %d %d", array, a, b) - 3;
                program_array();
                if (flags != 0) $fclose(flags);
                flags = 0;
                if (has_flags != 0 && BINARY) flags = $fopen({handoff, "/images/", array, "/flipped.bin"}, "r");
                else if (has_flags != 0) flags = $fopen({handoff, "/images/", array, "/flipped.hex"}, "r");
            end else if (keyword == "read") begin
                got = $fscanf(file, "%s %s %s %d %d %d %d %d", array, group, across, a, b, c, d, e) - 8;
                flipped = '0;
                if (has_flags != 0) read_flags;
                read_group(a, b, c, d, e);
            end else if (keyword == "sum") begin
                got = $fscanf(file, "%s", name) - 1;
                sum_layer;
            end else if (keyword == "requantise") begin
                got = $fscanf(file, "%s %s %d", after, value_name, stages) - 3;
                requantise;
            end else if (keyword == "end") got = 0;
            else $fatal(1, "FAIL: steps.txt has a line %s", keyword);
            if (got != 0) $fatal(1, "FAIL: steps.txt: a line %s has %0d words too few", keyword, -got);
        end
        $fclose(file);
        wrong = 0;
        for (int t = 0; t < SHOWN; t++) begin
            $display("%s: %0d compared, %0d differ", tap_name(t), compared[t], differ[t]);
            wrong = wrong + differ[t];
        end
        if (wrong != 0) $fatal(1, "FAIL: %0d values differ", wrong);
        for (int t = 0; t < NEEDED; t++) if (compared[t] == 0) $fatal(1, "FAIL: nothing was compared at %s", tap_name(t));
        $display("PASS");
        $finish;
    end

    function automatic string tap_name(int tap);
        case (tap)
            0: return "digits";
            1: return "sums";
            2: return "codes";
            3: return "shift_add";
            4: return "layer_sum";
            5: return "requantised";
            6: return "requantiser";
            default: return "converter";
        endcase
    endfunction
endmodule
