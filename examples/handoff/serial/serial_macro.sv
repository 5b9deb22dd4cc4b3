// A digital array with shared successive-approximation converters: an example of a macro that was
// not built for the bench. Its adapter is beside it, adapter.sv:
//
//   make -C handoff all MACRO=$PWD/examples/handoff/serial/serial_macro.sv \
//                       ADAPTER=$PWD/examples/handoff/serial/adapter.sv
//
// Cells are written through a port of 32 bits. A read is bit-serial: each clock takes one bit of the
// digits, one bit of the cells and one sign, counts the rows of every column in an adder tree with
// two registers, and adds the count to a carry-save accumulator. Then a converter for every SHARED
// columns finds the code of one after another, a bit a clock. Sums are not shown.

// The rows that conduct, counted two clocks later: quarters of the rows, then all.
module counting_tree #(
    parameter int ROWS = 128,
    parameter int BITS = 8
) (
    input  logic            clk,
    input  logic [1:0]      run,
    input  logic [ROWS-1:0] on,
    output logic [BITS-1:0] count
);
    localparam int QUARTER = (ROWS + 3) / 4;
    logic [4*QUARTER-1:0] padded;
    logic [BITS-1:0] first, second, third, fourth;
    assign padded = (4*QUARTER)'(on);

    // Of a plain variable: Icarus 11 miscounts the ones of an expression, without a warning.
    function automatic logic [BITS-1:0] ones(input logic [QUARTER-1:0] rows);
        ones = BITS'($countones(rows));
    endfunction
    always_ff @(posedge clk) begin
        if (run[0]) begin
            first <= ones(padded[0 +: QUARTER]);
            second <= ones(padded[QUARTER +: QUARTER]);
            third <= ones(padded[2*QUARTER +: QUARTER]);
            fourth <= ones(padded[3*QUARTER +: QUARTER]);
        end
        if (run[1]) count <= (first + second) + (third + fourth);
    end
endmodule

// A column of cells in PLANES bit planes, and its accumulator.
module serial_column #(
    parameter int ROWS = 128,
    parameter int PLANES = 2,
    parameter int SUM_BITS = 12,
    parameter int COUNT_BITS = $clog2(ROWS + 1)
) (
    input  logic                          clk,
    input  logic                          write,
    input  logic [$clog2(ROWS)-1:0]       row,
    input  logic [PLANES-1:0]             bits,
    input  logic [ROWS-1:0]               driven,    // rows that this pass drives
    input  logic [$clog2(PLANES+1)-1:0]   plane,     // bit of the cells that this pass reads
    input  logic                          clear,
    input  logic [2:0]                    run,       // count the rows; their quarters; add the count
    input  logic                          subtract,
    input  logic [4:0]                    weight,
    output logic signed [SUM_BITS-1:0]    sum
);
    logic [PLANES*ROWS-1:0] cells;
    always_ff @(posedge clk)
        if (write)
            for (int p = 0; p < PLANES; p++) cells[p*ROWS + 32'(row)] <= bits[p];
    logic [ROWS-1:0] on;
    logic [COUNT_BITS-1:0] count;
    assign on = run[0] ? cells[32'(plane)*ROWS +: ROWS] & driven : '0;
    counting_tree #(.ROWS(ROWS), .BITS(COUNT_BITS)) tree (.clk, .run(run[1:0]), .on, .count);

    // Carry-save: a term is added without a carry chain. Of a negative one, the carry into the lowest
    // bit makes the two's complement.
    logic [SUM_BITS-1:0] saved, carries, term;
    assign term = (SUM_BITS'(count) << weight) ^ {SUM_BITS{subtract}};
    always_ff @(posedge clk)
        if (clear) begin
            saved <= '0;
            carries <= '0;
        end else if (run[2]) begin
            saved <= saved ^ carries ^ term;
            carries <= {(saved[SUM_BITS-2:0] & carries[SUM_BITS-2:0]) | (term[SUM_BITS-2:0] & (saved[SUM_BITS-2:0] ^ carries[SUM_BITS-2:0])), subtract};
        end
    assign sum = saved + carries;
endmodule

// A successive-approximation converter: the highest code whose threshold the level reaches, a bit a
// clock, from the highest. Levels and thresholds count double, so that half a step is whole.
module sar_converter #(
    parameter int BITS = 8,
    parameter int WIDE = 24,
    parameter int ROUNDING = 0
) (
    input  logic                   clk,
    input  logic                   start,
    input  logic                   run,
    input  logic [BITS-1:0]        bit_of,  // one-hot
    input  logic signed [WIDE-1:0] level,
    input  logic signed [WIDE-1:0] step,
    input  logic signed [BITS-1:0] lo,
    input  logic [BITS-1:0]        codes,   // above the lowest
    output logic [BITS-1:0]        above,   // codes above the lowest that the level reaches
    output logic [BITS-1:0]        last     // and the bit of this clock
);
    logic [BITS-1:0] trial;
    logic signed [WIDE-1:0] reached, threshold;
    assign trial = above | bit_of;
    assign reached = WIDE'(lo) + $signed({{WIDE - BITS{1'b0}}, trial});
    if (ROUNDING == 2) assign threshold = (reached * step) <<< 1;
    // Half-even: a tie does not reach an odd code.
    else assign threshold = (reached <<< 1) * step - step + WIDE'($signed({1'b0, ROUNDING == 1 && reached[0]}));
    assign last = (run && trial <= codes && level >= threshold) ? bit_of : '0;
    always_ff @(posedge clk)
        if (start) above <= '0;
        else above <= above | last;
endmodule

module serial_macro #(
    parameter int ROWS = 128,
    parameter int COLUMNS = 128,
    parameter int PLANES = 2,                       // bits of a column in a row
    parameter int WORD = 32,                        // bits of a write
    parameter int DIGIT_BITS = 1,
    parameter int SUM_BITS = 12,
    parameter int SHARED = 8,                       // columns of a converter
    parameter int CONVERTER = 1,                    // 0: codes are sums
    parameter int ROUNDING = 0,
    parameter int REFERENCE_BITS = 0,
    parameter int STEP_BITS = 16,
    parameter int FINE_BITS = 20,
    parameter int CODE_BITS = 12,
    parameter int LINE_WORDS = (COLUMNS * PLANES + WORD - 1) / WORD,
    parameter int CONVERTERS = (COLUMNS + SHARED - 1) / SHARED
) (
    input  logic                              clk,
    input  logic                              reset,
    input  logic [COLUMNS*PLANES-1:0]         negative_bits,  // bits of a row that count negative
    input  logic [PLANES*5-1:0]               weights,        // place of each bit of a column
    // cells: a word of a row a clock; the row is written with its last word
    input  logic                              word_enable,
    input  logic [$clog2(ROWS)-1:0]           word_row,
    input  logic [$clog2(LINE_WORDS+1)-1:0]   word_index,
    input  logic [WORD-1:0]                   word,
    // a read, while ready
    output logic                              ready,
    input  logic                              read,
    input  logic [DIGIT_BITS*ROWS-1:0]        magnitudes,
    input  logic [ROWS-1:0]                   signs,
    input  logic [COLUMNS*STEP_BITS-1:0]      steps,
    input  logic [COLUMNS*FINE_BITS-1:0]      offsets,
    input  logic signed [CODE_BITS-1:0]       lowest,
    input  logic signed [CODE_BITS-1:0]       highest,
    // a code of every converter, of its column number `column`
    output logic                              code_valid,
    output logic [$clog2(SHARED+1)-1:0]       column,
    output logic [CONVERTERS*CODE_BITS-1:0]   code
);
    localparam int PLANE_BITS = $clog2(PLANES + 1), DIGIT_INDEX = $clog2(DIGIT_BITS + 1);
    localparam int WIDE = ((FINE_BITS > CODE_BITS + STEP_BITS) ? FINE_BITS : CODE_BITS + STEP_BITS) + 4;

    logic [LINE_WORDS*WORD-1:0] line, whole_line;
    always_comb begin
        whole_line = line;
        whole_line[32'(word_index)*WORD +: WORD] = word;
    end
    always_ff @(posedge clk) if (word_enable) line <= whole_line;
    logic write;
    assign write = word_enable && 32'(word_index) == LINE_WORDS - 1;

    // Passes: bits of digits, bits of cells, and signs if any digit is negative.
    localparam logic [1:0] IDLE = 2'd0, COUNT = 2'd1, DRAIN = 2'd2, CONVERT = 2'd3;
    logic [1:0] phase;
    logic [DIGIT_BITS*ROWS-1:0] held;
    logic [ROWS-1:0] below, driven;
    logic signed_read, minus, last_plane, last_digit;
    logic [PLANE_BITS-1:0] plane;
    logic [DIGIT_INDEX-1:0] digit;
    logic [1:0] drained;
    assign last_plane = 32'(plane) == PLANES - 1;
    assign last_digit = 32'(digit) == DIGIT_BITS - 1;
    assign driven = held[32'(digit)*ROWS +: ROWS] & (minus ? below : ~below);
    assign ready = phase == IDLE;

    // What a pass counts arrives two clocks later.
    logic [1:0] adding, subtracting;
    logic [4:0] weight_0, weight_1;
    logic [PLANE_BITS-1:0] plane_0, plane_1;
    always_ff @(posedge clk) begin
        adding <= {adding[0], phase == COUNT};
        subtracting <= {subtracting[0], minus};
        plane_0 <= plane;
        plane_1 <= plane_0;
        weight_0 <= weights[32'(plane)*5 +: 5] + 5'(digit);
        weight_1 <= weight_0;
        if (reset) adding <= '0;
    end

    logic signed [SUM_BITS-1:0] sums [0:COLUMNS-1];
    for (genvar j = 0; j < COLUMNS; j++) begin : g_column
        serial_column #(.ROWS(ROWS), .PLANES(PLANES), .SUM_BITS(SUM_BITS)) one (
            .clk, .write, .row(word_row), .bits(whole_line[j*PLANES +: PLANES]), .driven, .plane,
            .clear(read && ready), .run({adding, phase == COUNT}), .subtract(subtracting[1] ^ negative_bits[j*PLANES + 32'(plane_1)]), .weight(weight_1),
            .sum(sums[j])
        );
    end

    // Converters: a column after the other, a clock for each bit of the code and one to begin.
    logic [CODE_BITS-1:0] bit_of, highest_bit, range;
    logic beginning;
    assign range = highest - lowest;
    always_comb begin
        highest_bit = CODE_BITS'(1);
        for (int b = 1; b < CODE_BITS; b++) if (range[b]) highest_bit = CODE_BITS'(1) << b;
    end
    logic [CODE_BITS-1:0] kept [0:CONVERTERS-1];
    always_comb for (int a = 0; a < CONVERTERS; a++) code[a*CODE_BITS +: CODE_BITS] = kept[a];
    for (genvar a = 0; a < CONVERTERS; a++) begin : g_converter
        logic signed [SUM_BITS-1:0] sum;
        logic signed [WIDE-1:0] level, width;
        logic [CODE_BITS-1:0] above, last;
        logic [31:0] at;
        assign at = (a*SHARED + 32'(column) < COLUMNS) ? a*SHARED + 32'(column) : 0;
        always_ff @(posedge clk) if (beginning) sum <= sums[at]; // sample and hold
        assign level = ((WIDE'(sum) <<< REFERENCE_BITS) - WIDE'($signed(offsets[at*FINE_BITS +: FINE_BITS]))) <<< 1;
        assign width = $signed({{WIDE - STEP_BITS{1'b0}}, steps[at*STEP_BITS +: STEP_BITS]});
        sar_converter #(.BITS(CODE_BITS), .WIDE(WIDE), .ROUNDING(ROUNDING)) sar (
            .clk, .start(beginning), .run(phase == CONVERT), .bit_of, .level, .step(width), .lo(lowest), .codes(range), .above, .last
        );
        always_ff @(posedge clk)
            if (bit_of == CODE_BITS'(1)) kept[a] <= (CONVERTER == 0 || width == '0) ? CODE_BITS'(sum) : lowest + $signed(above | last);
    end
    assign code_valid = phase == CONVERT && bit_of == '0 && !beginning;

    always_ff @(posedge clk)
        if (reset) begin
            phase <= IDLE;
            column <= '0;
            beginning <= 1'b0;
            bit_of <= '0;
        end else case (phase)
            IDLE: if (read) begin
                held <= magnitudes;
                below <= signs;
                signed_read <= signs != '0;
                minus <= 1'b0;
                plane <= '0;
                digit <= '0;
                phase <= COUNT;
            end
            COUNT: begin
                if (!last_plane) plane <= plane + 1'b1;
                else begin
                    plane <= '0;
                    if (!last_digit) digit <= digit + 1'b1;
                    else begin
                        digit <= '0;
                        minus <= 1'b1;
                        if (minus || !signed_read) begin
                            phase <= DRAIN;
                            drained <= '0;
                        end
                    end
                end
            end
            DRAIN: begin
                drained <= drained + 2'd1;
                if (drained == 2'd2) begin
                    phase <= CONVERT;
                    column <= '0;
                    beginning <= 1'b1;
                end
            end
            CONVERT: begin
                beginning <= code_valid;
                if (beginning) bit_of <= highest_bit;
                else bit_of <= bit_of >> 1;
                if (code_valid) begin
                    column <= column + 1'b1;
                    if (32'(column) == SHARED - 1) begin
                        phase <= IDLE;
                        beginning <= 1'b0;
                    end
                end
            end
        endcase
endmodule
