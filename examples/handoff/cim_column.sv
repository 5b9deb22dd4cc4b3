// A column of bit cells with a flash converter, in place of a hand-off's sv/cim_column.sv: the same
// module, parameters and ports, built of the parts that such a column has.
//
//   make -C handoff icarus MACRO="sv/cim_array.sv $PWD/examples/handoff/cim_column.sv"
//
// A cell of several bits is a bit cell for each, on a bit line of its own; what bit lines count is
// added with its weight. It takes every kind of array but cells that leak, and converters of up to
// 16 codes.
/* verilator lint_off DECLFILENAME */

// A bit cell: it takes `data` when its word line goes up.
module bit_cell (
    input  logic word_line,
    input  logic data,
    output logic held
);
    always_ff @(posedge word_line) held <= data;
endmodule

// A bit line with its cells, one in each row: cells that hold 1 conduct where their row is driven,
// and the bit line counts them, those of rows that are driven negative against it. Each bit of a
// digit counts with its weight.
module bit_line #(
    parameter int ROWS = 128,
    parameter int DIGIT_BITS = 1,
    parameter int SUM_BITS = 12
) (
    input  logic [ROWS-1:0]            word_lines,
    input  logic                       data,
    input  logic [DIGIT_BITS*ROWS-1:0] drive,
    input  logic [ROWS-1:0]            negative,
    output logic signed [SUM_BITS-1:0] count
);
    logic [ROWS-1:0] held;
    bit_cell cells [ROWS-1:0] (.word_line(word_lines), .data(data), .held(held));

    // Population counts of a plain variable: of an expression Icarus 11 counts wrongly, silently.
    function automatic logic signed [SUM_BITS-1:0] counted(
        input logic [ROWS-1:0] ones_held, input logic [DIGIT_BITS*ROWS-1:0] digits, input logic [ROWS-1:0] down
    );
        logic [ROWS-1:0] on;
        int part;
        counted = '0;
        for (int d = 0; d < DIGIT_BITS; d++) begin
            on = ones_held & digits[d*ROWS +: ROWS];
            part = $countones(on);
            if (down != '0) begin
                on = on & down;
                part = part - 2 * $countones(on);
            end
            counted = counted + SUM_BITS'(part <<< d);
        end
    endfunction
    assign count = counted(held, drive, negative);
endmodule

module comparator #(
    parameter int BITS = 16
) (
    input  logic signed [BITS-1:0] level,
    input  logic signed [BITS-1:0] threshold,
    output logic                   above
);
    assign above = level >= threshold;
endmodule

module cim_column #(
    parameter int ROWS = 128,
    parameter int CELLS = 1,
    parameter int CELL_BITS = 2,
    parameter bit SIGNED_CELL = 1'b0,
    parameter int DIGIT_BITS = 1,
    parameter int SUM_BITS = 12,
    parameter int FRACTION_BITS = 0,
    parameter int LEAK = 0,
    parameter int CONVERTER = 1,
    parameter int ROUNDING = 0,
    parameter int REFERENCE_BITS = 0,
    parameter int STEP_BITS = 16,
    parameter int FINE_BITS = 20,
    parameter int CODE_BITS = 12,
    parameter int THRESHOLDS = 1
) (
    input  logic                          clk,
    input  logic                          write,
    input  logic [$clog2(ROWS)-1:0]       write_row,
    input  logic [CELLS*CELL_BITS-1:0]    write_cells,
    input  logic [DIGIT_BITS*ROWS-1:0]    drive,
    input  logic [ROWS-1:0]               negative,
    input  logic signed [SUM_BITS-1:0]    baseline,
    input  logic [STEP_BITS-1:0]          step,
    input  logic signed [FINE_BITS-1:0]   offset,
    input  logic signed [CODE_BITS-1:0]   lo,
    input  logic signed [CODE_BITS-1:0]   hi,
    input  logic [THRESHOLDS*FINE_BITS-1:0] thresholds,
    output logic signed [SUM_BITS-1:0]    sum,
    output logic signed [CODE_BITS-1:0]   code
);
    // What this column is built with: a converter of 4 bits.
    localparam int COMPARATORS = 15;

    if (LEAK != 0 || FRACTION_BITS != 0) begin : g_leak
        initial $fatal(1, "cim_column: LEAK = %0d, but bit cells do not leak; expected 0", LEAK);
    end
    if (CONVERTER == 2 && THRESHOLDS > COMPARATORS) begin : g_table
        initial $fatal(1, "cim_column: THRESHOLDS = %0d; expected at most %0d", THRESHOLDS, COMPARATORS);
    end

    // Row decoder: the word line of a row is up while it is written.
    logic [ROWS-1:0] word_lines;
    assign word_lines = (clk && write) ? ROWS'(1) << write_row : '0;

    // A bit line for each bit of a cell; those of a pair's second cell, and a sign bit, count down.
    localparam int LINES = CELLS * CELL_BITS;
    logic [LINES*SUM_BITS-1:0] counts;
    for (genvar p = 0; p < LINES; p++) begin : g_line
        localparam bit DOWN = (p >= CELL_BITS) != (SIGNED_CELL && p % CELL_BITS == CELL_BITS - 1);
        logic signed [SUM_BITS-1:0] count;
        bit_line #(.ROWS(ROWS), .DIGIT_BITS(DIGIT_BITS), .SUM_BITS(SUM_BITS)) line (
            .word_lines, .data(write_cells[p]), .drive, .negative, .count
        );
        assign counts[p*SUM_BITS +: SUM_BITS] = (DOWN ? -count : count) <<< (p % CELL_BITS);
    end
    function automatic logic signed [SUM_BITS-1:0] added(input logic [LINES*SUM_BITS-1:0] parts);
        added = '0;
        for (int p = 0; p < LINES; p++) added = added + $signed(parts[p*SUM_BITS +: SUM_BITS]);
    endfunction
    assign sum = added(counts) - baseline;

    // Twice what the converter sees, so that thresholds half a step below a code are whole.
    localparam int WIDE = ((FINE_BITS > CODE_BITS + STEP_BITS) ? FINE_BITS : CODE_BITS + STEP_BITS) + 3;
    logic unused;
    assign unused = ^{step, offset, lo, hi, thresholds};
    if (CONVERTER == 0) begin : g_none
        assign code = CODE_BITS'(sum);
    end else begin : g_flash
        logic signed [WIDE-1:0] level, width, codes;
        assign level = ((WIDE'(sum) <<< REFERENCE_BITS) - WIDE'(offset)) <<< 1;
        assign width = WIDE'($signed({1'b0, step}));
        assign codes = WIDE'(hi) - WIDE'(lo);

        // A comparator for each code above the lowest; those above the highest are off.
        logic [COMPARATORS-1:0] thermometer;
        for (genvar m = 0; m < COMPARATORS; m++) begin : g_comparator
            logic signed [WIDE-1:0] reached, threshold;
            logic above;
            assign reached = WIDE'(lo) + WIDE'(m + 1);
            if (CONVERTER == 2 && m < THRESHOLDS)
                assign threshold = WIDE'($signed(thresholds[m*FINE_BITS +: FINE_BITS])) <<< 1;
            else if (ROUNDING == 2) assign threshold = (reached * width) <<< 1;
            // Half-even: a tie does not reach an odd code.
            else assign threshold = (reached <<< 1) * width - width + WIDE'($signed({1'b0, ROUNDING == 1 && reached[0]}));
            comparator #(.BITS(WIDE)) one (.level, .threshold, .above);
            assign thermometer[m] = above && WIDE'(m) < codes;
        end
        assign code = (step == '0) ? CODE_BITS'(sum) : lo + CODE_BITS'($countones(thermometer));
        always @(posedge clk)
            if (codes > WIDE'(COMPARATORS))
                $fatal(1, "cim_column: %0d codes; %0d comparators tell %0d", codes + 1, COMPARATORS, COMPARATORS + 1);
    end
endmodule
