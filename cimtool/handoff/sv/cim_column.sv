// One column of an array and its converter: the analog part of a chip.
//
// This is the boundary of the bench: a chip team replaces this module by its own array and
// converter, or by a model of them, and keeps its ports.
//
//   sum   on the bit line: cells times digits, in 2^-FRACTION_BITS of a digit
//   code  from the converter: round((sum - offset) / step), or the number of thresholds that
//         sum - offset reaches, within lo to hi
module cim_column #(
    parameter int ROWS = 128,
    parameter int CELLS = 1,           // 2: a pair, the first cell less the second
    parameter int CELL_BITS = 2,
    parameter bit SIGNED_CELL = 1'b0,  // a cell holds two's complement
    parameter int DIGIT_BITS = 1,      // magnitude of the digit that drives a row
    parameter int SUM_BITS = 12,       // two's complement, holds every sum
    parameter int FRACTION_BITS = 0,
    parameter int LEAK = 0,            // of an erased cell, in 2^-FRACTION_BITS of a digit
    parameter int CONVERTER = 1,       // 0 none, 1 equal steps, 2 thresholds
    parameter int ROUNDING = 0,        // 0 half-up, 1 half-even, 2 floor
    parameter int REFERENCE_BITS = 0,  // steps, offsets, thresholds count in 2^-REFERENCE_BITS
    parameter int STEP_BITS = 16,
    parameter int FINE_BITS = 20,      // two's complement, holds every sum less its offset
    parameter int CODE_BITS = 12,
    parameter int THRESHOLDS = 1
) (
    input  logic                          clk,
    // programming: one word line a clock
    input  logic                          write,
    input  logic [$clog2(ROWS)-1:0]       write_row,
    input  logic [CELLS*CELL_BITS-1:0]    write_cells,
    // reading: bit planes of the digits' magnitudes, row 0 lowest, and the rows that are negative
    input  logic [DIGIT_BITS*ROWS-1:0]    drive,
    input  logic [ROWS-1:0]               negative,
    input  logic signed [SUM_BITS-1:0]    baseline,    // sum of the reference column, else 0
    // references of the converter; a step of 0 passes the sum through
    input  logic [STEP_BITS-1:0]          step,
    input  logic signed [FINE_BITS-1:0]   offset,
    input  logic signed [CODE_BITS-1:0]   lo,
    input  logic signed [CODE_BITS-1:0]   hi,
    input  logic [THRESHOLDS*FINE_BITS-1:0] thresholds,
    output logic signed [SUM_BITS-1:0]    sum,         // tap 2
    output logic signed [CODE_BITS-1:0]   code         // tap 3
);
    // All columns of a kind run the same code, which is compiled once.
    /* verilator no_inline_module */
    localparam int PLANES = CELLS * CELL_BITS;
    localparam int WIDE = FINE_BITS + 2;

    // Cells are kept as bit planes, so that a sum is a few population counts.
    logic [PLANES*ROWS-1:0] planes;
    always_ff @(posedge clk)
        if (write)
            for (int p = 0; p < PLANES; p++) planes[p*ROWS + 32'(write_row)] <= write_cells[p];

    // Tap 2: the sum on the bit line, cell times digit over the driven rows.
    function automatic logic signed [SUM_BITS-1:0] bit_line(
        input logic [PLANES*ROWS-1:0] cells, input logic [DIGIT_BITS*ROWS-1:0] digits, input logic [ROWS-1:0] down
    );
        logic [ROWS-1:0] driven, on;
        logic signs;
        int part, conducting;
        bit_line = '0;
        signs = down != '0;
        for (int d = 0; d < DIGIT_BITS; d++) begin
            driven = digits[d*ROWS +: ROWS];
            // Count the ones of plain variables only: Icarus 11 miscounts those of an expression, without a warning.
            for (int p = 0; p < PLANES; p++) begin
                on = cells[p*ROWS +: ROWS] & driven;
                conducting = $countones(on);
                part = 32'(conducting);
                if (signs) begin
                    on = on & down;
                    part = part - 2 * $countones(on);
                end
                if (p >= CELL_BITS || (SIGNED_CELL && p == CELL_BITS - 1)) part = -part;
                bit_line = bit_line + SUM_BITS'(part <<< (p % CELL_BITS + d + FRACTION_BITS));
            end
            if (LEAK != 0) begin
                on = driven & down;
                part = $countones(driven) - 2 * $countones(on);
                bit_line = bit_line + SUM_BITS'(LEAK * (part <<< d));
            end
        end
    endfunction
    assign sum = bit_line(planes, drive, negative) - baseline;

    // Tap 3: the converter. Division rounds down for both signs.
    function automatic logic signed [CODE_BITS-1:0] converted(
        input logic signed [SUM_BITS-1:0] given, input logic [STEP_BITS-1:0] s,
        input logic signed [FINE_BITS-1:0] o, input logic signed [CODE_BITS-1:0] least,
        input logic signed [CODE_BITS-1:0] most, input logic [THRESHOLDS*FINE_BITS-1:0] t
    );
        logic signed [WIDE-1:0] fine, width, quotient, rest, top;
        fine = (WIDE'(given) <<< REFERENCE_BITS) - WIDE'(o);
        width = $signed({{WIDE - STEP_BITS{1'b0}}, s});
        top = WIDE'(most);
        quotient = WIDE'(least);
        if (CONVERTER == 0 || s == '0) quotient = WIDE'(given);
        else if (CONVERTER == 1) begin
            quotient = fine / width;
            rest = fine % width;
            if (rest < 0) begin
                quotient = quotient - WIDE'(1);
                rest = rest + width;
            end
            rest = rest <<< 1;
            if (ROUNDING != 2 && (rest > width || (rest == width && (ROUNDING == 0 || quotient[0]))))
                quotient = quotient + WIDE'(1);
            if (quotient < WIDE'(least)) quotient = WIDE'(least);
            if (quotient > top) quotient = top;
        end else
            for (int j = 0; j < THRESHOLDS; j++)
                if (fine >= WIDE'($signed(t[j*FINE_BITS +: FINE_BITS])) && quotient < top) quotient = quotient + WIDE'(1);
        converted = CODE_BITS'(quotient);
    endfunction
    assign code = converted(sum, step, offset, lo, hi, thresholds);
endmodule
