// One compute-in-memory macro as the integer contract defines it: an array of columns with their
// converters, and the digital periphery: input cycles, shift-and-add, corrections.
//
// A cycle of input digits takes one clock. A lane is a column with a converter: LANE(weight, slice).
module cim_macro #(
    parameter int ROWS = 128,          // word lines
    parameter int WEIGHTS = 32,        // weights side by side
    parameter int SLICES = 4,          // lanes of a weight
    parameter bit SLICE_MAJOR = 1'b0,  // the weights of a slice side by side, else its slices
    parameter int POLARITIES = 1,      // lanes of a digit: 2 if each polarity is converted
    parameter int CELLS = 1,           // cells of a lane: 2 are a pair
    parameter bit NEGATIVE_FIRST = 1'b0, // of a pair, and of the lanes of its polarities
    parameter int CELL_BITS = 2,
    parameter bit [SLICES-1:0] SIGNED_CELLS = '0,
    parameter bit MULTIPLIES = 1'b0,       // slices count by factors, beside shifts
    parameter bit UNIT_COLUMN = 1'b0,      // measures the sum of the inputs, lane LANES
    parameter bit REFERENCE_COLUMN = 1'b0, // is subtracted from every other column
    parameter int BESIDE = 0,              // cells on a word line after those of weights
    parameter int INPUT_BITS = 9,      // of an input, two's complement
    parameter int DIGIT_BITS = 1,      // magnitude of a digit
    parameter int DIGIT_LANE = 4,      // bits of a digit at its tap, more than those of its magnitude
    parameter int CYCLES = 8,          // at most
    parameter int SUM_BITS = 12,
    parameter int FRACTION_BITS = 0,
    parameter int LEAK = 0,
    parameter int CONVERTER = 1,
    parameter int ROUNDING = 0,
    parameter int REFERENCE_BITS = 0,
    parameter int STEP_BITS = 16,
    parameter int FINE_BITS = 20,
    parameter int CODE_BITS = 12,
    parameter int THRESHOLDS = 1,
    parameter int ACC_BITS = 32,
    parameter int LANES = WEIGHTS * SLICES,
    parameter int CONVERTED = LANES + 32'(UNIT_COLUMN),
    parameter int REFERENCES = SLICES + 32'(UNIT_COLUMN),
    parameter int LINE = (LANES + BESIDE) * CELLS * CELL_BITS
) (
    input  logic                          clk,
    input  logic                          rst,
    // programming: one word line a clock
    input  logic                          write,
    input  logic [$clog2(ROWS)-1:0]       write_row,
    input  logic [LINE-1:0]               write_data,
    // configuration of a layer; stable while a read runs
    input  logic                          sign_magnitude, // digits are of |x|, with the sign of x
    input  logic signed [INPUT_BITS:0]    lift,           // added to an input first
    input  logic [5:0]                    cycles,
    input  logic [CYCLES*5-1:0]           cycle_shift,    // lowest bit that a cycle drives
    input  logic [CYCLES*5-1:0]           cycle_bits,     // bits that it drives; 0: all above
    input  logic [CYCLES-1:0]             cycle_negative, // its sums are subtracted
    input  logic [SLICES*6-1:0]           slice_shift,
    input  logic [SLICES-1:0]             slice_negative,
    input  logic [SLICES*16-1:0]          slice_factor,   // 1 unless MULTIPLIES
    input  logic signed [CODE_BITS-1:0]   lo,
    input  logic signed [CODE_BITS-1:0]   hi,
    input  logic signed [ACC_BITS-1:0]    complement,     // sum of a digit and its complement
    input  logic signed [ACC_BITS-1:0]    weight_offset,  // excess of cells over a weight
    // configuration of a row group
    input  logic [ROWS-1:0]               row_enable,
    input  logic [ROWS-1:0]               idle,           // further rows, driven with the code of zero
    input  logic [LANES-1:0]              flipped,        // columns that hold complements
    // references of the converters in the cycle number `cycle`
    output logic [5:0]                    cycle,
    input  logic [REFERENCES*STEP_BITS-1:0]              step,
    input  logic [CONVERTED*FINE_BITS-1:0]               offset,
    input  logic [REFERENCES*THRESHOLDS*FINE_BITS-1:0]   thresholds,
    input  logic [REFERENCES*(THRESHOLDS+1)*FINE_BITS-1:0] levels,
    // one product
    input  logic                          start,
    input  logic [ROWS*INPUT_BITS-1:0]    x,
    output logic                          done,
    output logic [WEIGHTS*ACC_BITS-1:0]   acc,            // tap 4, valid with done
    // taps 1 to 3, valid with tap_valid
    output logic                          tap_valid,
    output logic [ROWS*DIGIT_LANE-1:0]    tap_digits,     // two's complement
    output logic [CONVERTED*SUM_BITS-1:0] tap_sums,
    output logic [CONVERTED*CODE_BITS-1:0] tap_codes
);
    localparam int CYCLE_BITS = (CYCLES > 1) ? $clog2(CYCLES) : 1;

    logic running;
    logic [ROWS*INPUT_BITS-1:0] held;
    logic [4:0] shift, bits;
    logic last, counts_negative;
    assign shift = cycle_shift[cycle*5 +: 5];
    assign bits = cycle_bits[cycle*5 +: 5];
    assign last = cycle + 6'd1 == cycles;
    assign counts_negative = cycle_negative[cycle[CYCLE_BITS-1:0]];

    // The lanes of a digit, one per polarity, are adjacent. Slices are numbered positive lane first.
    function automatic int polarity_of(input int place);
        polarity_of = NEGATIVE_FIRST ? POLARITIES - 1 - place % POLARITIES : place % POLARITIES;
    endfunction
    function automatic int lane_of(input int weight, input int slice);
        lane_of = (SLICE_MAJOR ? slice / POLARITIES * WEIGHTS + weight : weight * (SLICES / POLARITIES) + slice / POLARITIES)
                * POLARITIES + polarity_of(slice);
    endfunction
    function automatic int slice_of(input int lane);
        if (lane == LANES) slice_of = SLICES;
        else slice_of = (SLICE_MAJOR ? lane / (WEIGHTS * POLARITIES) : lane % SLICES / POLARITIES) * POLARITIES
                      + polarity_of(lane);
    endfunction

    // Tap 1: the digit of each row, then the bit planes of its magnitude and its sign.
    function automatic logic signed [DIGIT_BITS:0] digit_of(
        input logic [INPUT_BITS-1:0] given, input logic signed [INPUT_BITS:0] added_first, input logic magnitude,
        input logic [4:0] from, input logic [4:0] count
    );
        logic signed [INPUT_BITS+1:0] lifted;
        logic below;
        lifted = (INPUT_BITS+2)'($signed(given)) + (INPUT_BITS+2)'(added_first);
        below = magnitude && lifted < 0;
        if (below) lifted = -lifted;
        lifted = lifted >>> from;
        // A cycle that drives all bits drives the sign of the input too.
        if (count != '0) lifted = lifted & (((INPUT_BITS+2)'(1) <<< count) - (INPUT_BITS+2)'(1));
        digit_of = (DIGIT_BITS+1)'(below ? -lifted : lifted);
    endfunction

    // One process drives each bus at once. If a bus is driven bit by bit, Verilator 5.006 can drive wrong
    // planes without a warning, and Icarus wakes every column for each bit.
    logic [DIGIT_BITS*ROWS-1:0] drive;
    logic [ROWS-1:0] negative, driving;
    always_comb begin : drive_rows
        logic signed [DIGIT_BITS:0] digit;
        logic [DIGIT_BITS-1:0] size;
        logic [DIGIT_BITS*ROWS-1:0] planes;
        logic [ROWS*DIGIT_LANE-1:0] digits;
        logic [ROWS-1:0] below, enabled;
        planes = '0;
        digits = '0;
        for (int r = 0; r < ROWS; r++) begin
            digit = digit_of(held[r*INPUT_BITS +: INPUT_BITS], lift, sign_magnitude, 5'(shift), bits);
            enabled[r] = row_enable[r];
            below[r] = digit < 0;
            size = DIGIT_BITS'((digit < 0) ? -digit : digit);
            if (enabled[r]) digits[r*DIGIT_LANE +: DIGIT_LANE] = DIGIT_LANE'(digit);
            if (enabled[r] || idle[r])
                for (int d = 0; d < DIGIT_BITS; d++) planes[d*ROWS + r] = size[d];
        end
        drive = planes;
        negative = below;
        driving = enabled;
        tap_digits = digits;
    end

    // Count the ones of a plain variable only: Icarus 11 miscounts those of an expression, without a warning.
    function automatic int ones(input logic [ROWS-1:0] mask);
        ones = $countones(mask);
    endfunction

    // The digital sum of the digits, which offset weights, complements and leaking cells need.
    function automatic logic signed [ACC_BITS-1:0] sum_of(
        input logic [DIGIT_BITS*ROWS-1:0] digits, input logic [ROWS-1:0] down, input logic [ROWS-1:0] among
    );
        int part;
        sum_of = '0;
        for (int d = 0; d < DIGIT_BITS; d++) begin
            part = ones(digits[d*ROWS +: ROWS] & among & ~down) - ones(digits[d*ROWS +: ROWS] & among & down);
            sum_of = sum_of + ACC_BITS'(part <<< d);
        end
    endfunction
    logic signed [ACC_BITS-1:0] driven, conducting;
    assign driven = sum_of(drive, negative, driving);
    assign conducting = sum_of(drive, negative, '1);

    // The array. After the cells of weights come the unit column, then the reference column.
    logic signed [SUM_BITS-1:0] baseline;
    if (REFERENCE_COLUMN) begin : g_reference
        logic signed [CODE_BITS-1:0] unread;
        cim_column #(
            .ROWS(ROWS), .CELLS(1), .CELL_BITS(CELL_BITS), .DIGIT_BITS(DIGIT_BITS), .SUM_BITS(SUM_BITS),
            .FRACTION_BITS(FRACTION_BITS), .CONVERTER(0), .STEP_BITS(STEP_BITS), .FINE_BITS(FINE_BITS),
            .CODE_BITS(CODE_BITS)
        ) column (
            .clk, .write, .write_row,
            .write_cells(write_data[(LANES + 32'(UNIT_COLUMN))*CELL_BITS +: CELL_BITS]),
            .drive, .negative, .baseline({SUM_BITS{1'b0}}), .step({STEP_BITS{1'b0}}), .offset({FINE_BITS{1'b0}}),
            .lo, .hi, .thresholds({FINE_BITS{1'b0}}),
            .sum(baseline), .code(unread)
        );
    end else assign baseline = '0;

    // Each column has its own word: Icarus is slow if each part of a bus has its own driver.
    logic signed [SUM_BITS-1:0] sums [0:CONVERTED-1];
    logic signed [CODE_BITS-1:0] codes [0:CONVERTED-1];
    for (genvar j = 0; j < CONVERTED; j++) begin : g_lane
        localparam int SLICE = slice_of(j);
        localparam int OWN = (j == LANES) ? 1 : CELLS;
        logic signed [SUM_BITS-1:0] reference;
        // A column takes the positive cell of a pair first.
        logic [OWN*CELL_BITS-1:0] stored, given;
        assign stored = write_data[j*CELLS*CELL_BITS +: OWN*CELL_BITS];
        if (OWN == 2 && NEGATIVE_FIRST) assign given = {stored[CELL_BITS-1:0], stored[OWN*CELL_BITS-1 -: CELL_BITS]};
        else assign given = stored;
        if (j == LANES) assign reference = '0;
        else assign reference = baseline;
        cim_column #(
            .ROWS(ROWS), .CELLS(OWN), .CELL_BITS(CELL_BITS),
            .SIGNED_CELL((j == LANES) ? 1'b0 : SIGNED_CELLS[SLICE % SLICES]),
            .DIGIT_BITS(DIGIT_BITS), .SUM_BITS(SUM_BITS),
            .FRACTION_BITS((j == LANES) ? 0 : FRACTION_BITS), .LEAK((j == LANES) ? 0 : LEAK),
            .CONVERTER(CONVERTER), .ROUNDING(ROUNDING), .REFERENCE_BITS(REFERENCE_BITS),
            .STEP_BITS(STEP_BITS), .FINE_BITS(FINE_BITS), .CODE_BITS(CODE_BITS), .THRESHOLDS(THRESHOLDS)
        ) column (
            .clk, .write, .write_row,
            .write_cells(given),
            .drive, .negative, .baseline(reference),
            .step(step[SLICE*STEP_BITS +: STEP_BITS]), .offset(offset[j*FINE_BITS +: FINE_BITS]),
            .lo, .hi, .thresholds(thresholds[SLICE*THRESHOLDS*FINE_BITS +: THRESHOLDS*FINE_BITS]),
            .sum(sums[j]), .code(codes[j])
        );
    end
    always_comb
        for (int j = 0; j < CONVERTED; j++) begin
            tap_sums[j*SUM_BITS +: SUM_BITS] = sums[j];
            tap_codes[j*CODE_BITS +: CODE_BITS] = codes[j];
        end

    // The digital value of a lane's code, in 2^-(FRACTION_BITS + REFERENCE_BITS).
    logic signed [ACC_BITS-1:0] value [0:CONVERTED-1];
    for (genvar j = 0; j < CONVERTED; j++) begin : g_value
        localparam int SLICE = slice_of(j);
        logic signed [CODE_BITS-1:0] code;
        logic signed [ACC_BITS-1:0] from;
        logic [STEP_BITS-1:0] width;
        assign code = codes[j];
        assign from = ACC_BITS'($signed(offset[j*FINE_BITS +: FINE_BITS]));
        assign width = step[SLICE*STEP_BITS +: STEP_BITS];
        if (CONVERTER == 2) begin : g_levels
            logic [(THRESHOLDS+1)*FINE_BITS-1:0] known;
            logic signed [CODE_BITS-1:0] place;
            assign known = levels[SLICE*(THRESHOLDS+1)*FINE_BITS +: (THRESHOLDS+1)*FINE_BITS];
            assign place = code - lo;
            assign value[j] = (width == '0) ? ACC_BITS'(code) <<< REFERENCE_BITS
                            : ACC_BITS'($signed(known[32'(place)*FINE_BITS +: FINE_BITS])) + from;
        end else begin : g_steps
            logic unused;
            assign unused = ^levels;
            assign value[j] = (width == '0) ? ACC_BITS'(code) <<< REFERENCE_BITS
                            : ACC_BITS'(code) * ACC_BITS'($signed({1'b0, width})) + from;
        end
    end

    // The sum of the digits that drive a row group: measured by the unit column, or counted.
    logic signed [ACC_BITS-1:0] row_sum, leaked;
    if (UNIT_COLUMN) assign row_sum = value[LANES] <<< FRACTION_BITS;
    else assign row_sum = driven <<< (FRACTION_BITS + REFERENCE_BITS);
    assign leaked = (ACC_BITS'(LEAK) * conducting) <<< REFERENCE_BITS;

    // Tap 4: shift-and-add over the slices of a weight, then over cycles.
    function automatic logic signed [ACC_BITS-1:0] sum_of_parts(input logic [SLICES*ACC_BITS-1:0] parts);
        sum_of_parts = '0;
        for (int k = 0; k < SLICES; k++) sum_of_parts = sum_of_parts + $signed(parts[k*ACC_BITS +: ACC_BITS]);
    endfunction
    for (genvar w = 0; w < WEIGHTS; w++) begin : g_weight
        logic [SLICES*ACC_BITS-1:0] parts;
        logic signed [ACC_BITS-1:0] total, added;
        for (genvar k = 0; k < SLICES; k++) begin : g_slice
            logic signed [ACC_BITS-1:0] read, whole, scaled;
            assign read = value[lane_of(w, k)] - leaked;
            assign whole = flipped[lane_of(w, k)] ? complement * row_sum - read : read;
            if (MULTIPLIES) begin : g_multiplied
                assign scaled = whole * ACC_BITS'($signed({1'b0, slice_factor[k*16 +: 16]}));
            end else begin : g_shifted
                logic unused;
                assign unused = ^slice_factor;
                assign scaled = whole;
            end
            assign parts[k*ACC_BITS +: ACC_BITS] = (slice_negative[k] ? -scaled : scaled) <<< slice_shift[k*6 +: 6];
        end
        assign total = sum_of_parts(parts) - weight_offset * row_sum;
        assign added = (counts_negative ? -total : total) <<< shift;
        always_ff @(posedge clk)
            if (start) acc[w*ACC_BITS +: ACC_BITS] <= '0;
            else if (running) acc[w*ACC_BITS +: ACC_BITS] <= acc[w*ACC_BITS +: ACC_BITS] + added;
    end

    assign tap_valid = running;
    always_ff @(posedge clk) begin
        done <= 1'b0;
        if (rst) running <= 1'b0;
        else if (start) begin
            running <= 1'b1;
            cycle <= '0;
            held <= x;
        end else if (running) begin
            cycle <= cycle + 6'd1;
            running <= !last;
            done <= last;
        end
    end
endmodule
