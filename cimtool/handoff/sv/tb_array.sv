// Runs an array, behind its adapter, through all images of its kind in a hand-off folder, and compares
// what it shows at the taps.
//
//   +HANDOFF=DIR   the folder (.)
//   +FAULT=N       a fault of the sources that `make mutants` writes (0: none)
//   +TIMEOUT=N     clocks in which an array must take or answer something (10000)
//   +STEP=FILE     a file for the step that runs (none)
//
// The array is programmed with each image in turn, word line by word line, like a chip.
module tb_array;
    import cim::*;
    localparam int TAPS = 8;

    int fault = 0;
    logic clk = 1'b0;
    always #5 clk = ~clk;

    logic rst = 1'b1, start = 1'b0, done;
    logic sign_magnitude = 1'b0;
    logic signed [INPUT_BITS:0] lift = '0;
    logic [5:0] cycles = 6'd1, asked, answered;
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
    logic [REFERENCES*(THRESHOLDS+1)*FINE_BITS-1:0] levels;
    logic [ROWS*INPUT_BITS-1:0] x = '0;
    logic [WEIGHTS*ACC_BITS-1:0] acc;
    logic [ROWS*DIGIT_LANE-1:0] digits;
    logic macro_valid, in_ready, write_ready, shows_sums;
    logic [DIGIT_BITS*ROWS-1:0] macro_drive;
    logic [ROWS-1:0] macro_negative;
    logic [CONVERTED-1:0] out_valid;
    logic [CONVERTED*CODE_BITS-1:0] codes;
    logic [CONVERTED*SUM_BITS-1:0] sums;
    cim_macro macro (.in_valid(macro_valid), .drive(macro_drive), .negative(macro_negative), .*);

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

    // The references of each cycle, if each has its own: those of the answers that come next.
    int own_cycles = 1;
    logic [CYCLES*REFERENCES*STEP_BITS-1:0] steps = '0;
    logic [CYCLES*CONVERTED*FINE_BITS-1:0] offsets = '0;
    logic [CYCLES*REFERENCES*THRESHOLDS*FINE_BITS-1:0] all_thresholds = '0;
    logic [CYCLES*REFERENCES*(THRESHOLDS+1)*FINE_BITS-1:0] all_levels = '0;
    logic [31:0] own;
    assign own = (own_cycles == 1) ? 32'd0 : 32'(answered);
    assign step = steps[own*REFERENCES*STEP_BITS +: REFERENCES*STEP_BITS];
    assign offset = offsets[own*CONVERTED*FINE_BITS +: CONVERTED*FINE_BITS];
    assign levels = all_levels[own*REFERENCES*(THRESHOLDS+1)*FINE_BITS +: REFERENCES*(THRESHOLDS+1)*FINE_BITS];

    // The array. The macro drives it, or the bench with digits and references of its own.
    logic write_valid = 1'b0;
    logic [$clog2(ROWS)-1:0] write_row = '0;
    logic [LINE-1:0] write_data = '0;
    logic direct = 1'b0, direct_valid = 1'b0, in_valid;
    logic [DIGIT_BITS*ROWS-1:0] direct_drive = '0, drive;
    logic [ROWS-1:0] direct_negative = '0, negative;
    int direct_cycle = 0;
    logic signed [FINE_BITS-1:0] direct_offset = '0;
    logic [31:0] own_input;
    logic [REFERENCES*STEP_BITS-1:0] array_step;
    logic [CONVERTED*FINE_BITS-1:0] array_offset;
    logic [REFERENCES*THRESHOLDS*FINE_BITS-1:0] array_thresholds;
    assign own_input = direct ? 32'(direct_cycle) : (own_cycles == 1) ? 32'd0 : 32'(asked);
    assign in_valid = direct ? direct_valid : macro_valid;
    assign drive = direct ? direct_drive : macro_drive;
    assign negative = direct ? direct_negative : macro_negative;
    assign array_step = steps[own_input*REFERENCES*STEP_BITS +: REFERENCES*STEP_BITS];
    assign array_offset = direct ? {CONVERTED{direct_offset}} : offsets[own_input*CONVERTED*FINE_BITS +: CONVERTED*FINE_BITS];
    assign array_thresholds = all_thresholds[own_input*REFERENCES*THRESHOLDS*FINE_BITS +: REFERENCES*THRESHOLDS*FINE_BITS];
`include "tb_boundary.svh"

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
    longint compared [0:TAPS], differ [0:TAPS];
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

    string handoff, keyword, name, array, group, across, after, value_name;
    logic other; // the layer is of another kind, or it is a search
    int file, flags, got;
    int places, tolerance, pulse = 0, max_pulses = 0, erased = 0, digit_count = 0; // of write-verify
    int columns, vectors, stages, code_kind, threshold_places, has_flags, step_lines = 0;
    int a, b, c, d, e, f;
    longint u, v;
    logic bit_of;

`include "tb_progress.svh"
`include "tb_references.svh"
`include "tb_answers.svh"
`ifdef WRITE_VERIFY
`include "tb_write.svh"
`endif
`include "tb_images.svh"
`include "tb_layer.svh"
`include "tb_converter.svh"
`ifdef RANDOM
`include "tb_random.svh"
`else
`include "tb_taps.svh"
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
        if (!$value$plusargs("TIMEOUT=%d", limit)) limit = 10000;
        if (!$value$plusargs("STEP=%s", step_file)) step_file = "";
        for (int t = 0; t <= TAPS; t++) begin compared[t] = 0; differ[t] = 0; end
        for (int t = 0; t < VECTORS*WIDTH; t++) totals[t] = '0;
        repeat (4) @(negedge clk);
        rst = 1'b0;
        file = $fopen({handoff, "/steps.txt"}, "r");
        if (file == 0) $fatal(1, "FAIL: no %s/steps.txt", handoff);
        keyword = ""; other = 1'b0; flags = 0; has_flags = 0; threshold_places = 0; code_kind = 0;
        while (keyword != "end") begin
            got = $fscanf(file, "%s", keyword);
            if (got != 1) $fatal(1, "FAIL: steps.txt has no end");
            step_lines = step_lines + 1;
            if (keyword == "layer" || keyword == "end") other = 1'b0;
            if (keyword == "search") other = 1'b1; // tb_cam.sv runs it
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
            end else if (keyword == "write_verify") begin
                got = $fscanf(file, "%s %d %d %d %d %d %d", name, places, tolerance, pulse, max_pulses, erased, digit_count) - 7;
`ifdef WRITE_VERIFY
                load_bounds;
`endif
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
            end else if (keyword == "direct") begin
                got = $fscanf(file, "%s %d %d", name, a, b) - 3;
                direct_sums(a, b);
            end else if (keyword == "sum") begin
                got = $fscanf(file, "%s", name) - 1;
                sum_layer;
            end else if (keyword == "requantise") begin
                got = $fscanf(file, "%s %s %d", after, value_name, stages) - 3;
                requantise;
            end else if (keyword == "end") begin
                got = $fscanf(file, "%d", a) - 1;
                if (a != step_lines) $fatal(1, "FAIL: steps.txt has %0d lines; expected %0d", step_lines, a);
            end
            else $fatal(1, "FAIL: steps.txt has a line %s", keyword);
            if (got != 0) $fatal(1, "FAIL: steps.txt: a line %s has %0d words too few", keyword, -got);
        end
        $fclose(file);
        wrong = differ[TAPS];
`ifdef WRITE_VERIFY
        show_pulses;
`endif
        for (int t = 0; t < SHOWN; t++) begin
            $display("%s: %0d compared, %0d differ", tap_name(t), compared[t], differ[t]);
            wrong = wrong + differ[t];
        end
        if (wrong != 0) $fatal(1, "FAIL: %0d %s", wrong, wrong == 1 ? "value differs" : "values differ");
        for (int t = 0; t < 4; t++) if (compared[t] == 0 && (t != 1 || shows_sums)) $fatal(1, "FAIL: nothing was compared at %s", tap_name(t));
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
            7: return "converter";
            default: return "write_verify"; // tap TAPS, of the cells of images
        endcase
    endfunction
endmodule
