// The digital periphery of an array as the integer contract defines it: input cycles, shift-and-add,
// corrections.
//
// It asks the array for a cycle of input digits after the other. The array may take any number of
// clocks for each, and its columns may answer one after another. A lane is a column with a
// converter. Widths and extents are those of the package `cim`, in parameters.svh.
module cim_macro import cim::*; (
    input  logic                          clk,
    input  logic                          rst,
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
    input  logic signed [CODE_BITS-1:0]   lo,             // the lowest code
    input  logic signed [ACC_BITS-1:0]    complement,     // sum of a digit and its complement
    input  logic signed [ACC_BITS-1:0]    weight_offset,  // excess of cells over a weight
    // configuration of a row group
    input  logic [ROWS-1:0]               row_enable,
    input  logic [ROWS-1:0]               idle,           // further rows, driven with the code of zero
    input  logic [LANES-1:0]              flipped,        // columns that hold complements
    // references of the converters in the cycle number `answered`, whose codes come next
    output logic [5:0]                    answered,
    input  logic [REFERENCES*STEP_BITS-1:0]              step,
    input  logic [CONVERTED*FINE_BITS-1:0]               offset,
    input  logic [REFERENCES*(THRESHOLDS+1)*FINE_BITS-1:0] levels,
    // the array's input port: the digits of cycle number `asked`; then its output port
    output logic [5:0]                    asked,
    output logic                          in_valid,
    input  logic                          in_ready,
    output logic [DIGIT_BITS*ROWS-1:0]    drive,
    output logic [ROWS-1:0]               negative,
    input  logic [CONVERTED-1:0]          out_valid,
    input  logic [CONVERTED*CODE_BITS-1:0] codes,
    // one product
    input  logic                          start,
    input  logic [ROWS*INPUT_BITS-1:0]    x,
    output logic                          done,
    output logic [WEIGHTS*ACC_BITS-1:0]   acc,            // tap 4, valid with done
    output logic [ROWS*DIGIT_LANE-1:0]    digits          // tap 1, valid with in_valid, two's complement
);
    localparam int CYCLE_BITS = (CYCLES > 1) ? $clog2(CYCLES) : 1;

    logic running;
    logic [ROWS*INPUT_BITS-1:0] held;
    logic [4:0] shift, bits, answer_shift;
    logic accepted, complete, counts_negative;
    assign shift = cycle_shift[asked*5 +: 5];
    assign bits = cycle_bits[asked*5 +: 5];
    assign answer_shift = cycle_shift[answered*5 +: 5];
    assign counts_negative = cycle_negative[answered[CYCLE_BITS-1:0]];

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
    logic [ROWS-1:0] driving;
    always_comb begin : drive_rows
        logic signed [DIGIT_BITS:0] digit;
        logic [DIGIT_BITS-1:0] size;
        logic [DIGIT_BITS*ROWS-1:0] planes;
        logic [ROWS*DIGIT_LANE-1:0] own;
        logic [ROWS-1:0] below, enabled;
        planes = '0;
        own = '0;
        for (int r = 0; r < ROWS; r++) begin
            digit = digit_of(held[r*INPUT_BITS +: INPUT_BITS], lift, sign_magnitude, 5'(shift), bits);
            enabled[r] = row_enable[r];
            below[r] = digit < 0;
            size = DIGIT_BITS'((digit < 0) ? -digit : digit);
            if (enabled[r]) own[r*DIGIT_LANE +: DIGIT_LANE] = DIGIT_LANE'(digit);
            if (enabled[r] || idle[r])
                for (int d = 0; d < DIGIT_BITS; d++) planes[d*ROWS + r] = size[d];
        end
        drive = planes;
        negative = below;
        driving = enabled;
        digits = own;
    end

    // Count the ones of a plain variable only: Icarus 11 miscounts those of an expression, without a warning.
    function automatic int ones(input logic [ROWS-1:0] mask);
        ones = $countones(mask);
    endfunction

    // The digital sum of the digits, which offset weights, complements and leaking cells need.
    function automatic logic signed [ACC_BITS-1:0] sum_of(
        input logic [DIGIT_BITS*ROWS-1:0] planes, input logic [ROWS-1:0] down, input logic [ROWS-1:0] among
    );
        int part;
        sum_of = '0;
        for (int d = 0; d < DIGIT_BITS; d++) begin
            part = ones(planes[d*ROWS +: ROWS] & among & ~down) - ones(planes[d*ROWS +: ROWS] & among & down);
            sum_of = sum_of + ACC_BITS'(part <<< d);
        end
    endfunction
    logic signed [ACC_BITS-1:0] driven, conducting;
    // They are kept until the codes of their cycle have come.
    logic signed [ACC_BITS-1:0] driven_now, conducting_now;
    logic [CYCLES*ACC_BITS-1:0] driven_then, conducting_then;
    assign driven_now = sum_of(drive, negative, driving);
    assign conducting_now = sum_of(drive, negative, '1);
    assign driven = (answered == asked) ? driven_now : driven_then[answered*ACC_BITS +: ACC_BITS];
    assign conducting = (answered == asked) ? conducting_now : conducting_then[answered*ACC_BITS +: ACC_BITS];
    always_ff @(posedge clk)
        if (accepted) begin
            driven_then[asked*ACC_BITS +: ACC_BITS] <= driven_now;
            conducting_then[asked*ACC_BITS +: ACC_BITS] <= conducting_now;
        end

    // Codes are kept until all lanes have answered.
    logic [CONVERTED-1:0] arrived;
    logic signed [CODE_BITS-1:0] kept [0:CONVERTED-1];
    assign in_valid = running && asked != cycles;
    assign accepted = in_valid && in_ready;
    assign complete = (arrived | out_valid) == '1;
    always_ff @(posedge clk) begin
        if (rst || start || complete) arrived <= '0;
        else arrived <= arrived | out_valid;
    end

    // The digital value of a lane's code, in 2^-(FRACTION_BITS + REFERENCE_BITS).
    logic signed [ACC_BITS-1:0] value [0:CONVERTED-1];
    for (genvar j = 0; j < CONVERTED; j++) begin : g_value
        localparam int SLICE = slice_of(j);
        logic signed [CODE_BITS-1:0] code;
        logic signed [ACC_BITS-1:0] from;
        logic [STEP_BITS-1:0] width;
        always_ff @(posedge clk) if (out_valid[j]) kept[j] <= codes[j*CODE_BITS +: CODE_BITS];
        assign code = out_valid[j] ? codes[j*CODE_BITS +: CODE_BITS] : kept[j];
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
            assign unused = ^{levels, lo};
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
        assign added = (counts_negative ? -total : total) <<< answer_shift;
        always_ff @(posedge clk)
            if (start) acc[w*ACC_BITS +: ACC_BITS] <= '0;
            else if (complete) acc[w*ACC_BITS +: ACC_BITS] <= acc[w*ACC_BITS +: ACC_BITS] + added;
    end

    always_ff @(posedge clk) begin
        done <= 1'b0;
        if (rst) running <= 1'b0;
        else if (start) begin
            running <= 1'b1;
            asked <= '0;
            answered <= '0;
            held <= x;
        end else if (running) begin
            if (accepted) asked <= asked + 6'd1;
            if (complete) begin
                answered <= answered + 6'd1;
                running <= answered + 6'd1 != cycles;
                done <= answered + 6'd1 == cycles;
            end
        end
    end
endmodule
