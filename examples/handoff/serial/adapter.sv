// From the bench's ports (handoff/sv/cim_adapter.sv explains them) to those of serial_macro.
module cim_adapter import cim::*; (
    input  logic                          clk,
    input  logic                          rst,
    input  logic                          write_valid,
    output logic                          write_ready,
    input  logic [$clog2(ROWS)-1:0]       write_row,
    input  logic [LINE-1:0]               write_data,
    input  logic                          in_valid,
    output logic                          in_ready,
    input  logic [DIGIT_BITS*ROWS-1:0]    drive,
    input  logic [ROWS-1:0]               negative,
    input  logic [REFERENCES*STEP_BITS-1:0]            step,
    input  logic [CONVERTED*FINE_BITS-1:0]             offset,
    input  logic [REFERENCES*THRESHOLDS*FINE_BITS-1:0] thresholds,
    input  logic signed [CODE_BITS-1:0]   lo,
    input  logic signed [CODE_BITS-1:0]   hi,
    output logic [CONVERTED-1:0]          out_valid,
    output logic [CONVERTED*CODE_BITS-1:0] codes,
    output logic                          shows_sums,
    output logic [CONVERTED*SUM_BITS-1:0] sums
);
    localparam int PLANES = CELLS * CELL_BITS, SHARED = 8, WORD = 32;
    localparam int LINE_WORDS = (CONVERTED * PLANES + WORD - 1) / WORD, CONVERTERS = (CONVERTED + SHARED - 1) / SHARED;
    localparam int INDEX = $clog2(LINE_WORDS + 1);

    if (LEAK != 0 || FRACTION_BITS != 0) begin : g_leak
        initial $fatal(1, "serial_macro: LEAK = %0d, but its cells do not leak; expected 0", LEAK);
    end
    if (CONVERTER == 2) begin : g_table
        initial $fatal(1, "serial_macro: its converters have equal steps; expected CONVERTER 0 or 1, not 2");
    end
    if (REFERENCE_COLUMN) begin : g_reference
        initial $fatal(1, "serial_macro: it has no reference column; expected REFERENCE_COLUMN 0");
    end

    // Bits that count negative: those of a pair's negative cell, and sign bits.
    logic [CONVERTED*PLANES-1:0] negative_bits;
    logic [PLANES*5-1:0] weights;
    for (genvar p = 0; p < PLANES; p++) begin : g_plane
        assign weights[p*5 +: 5] = 5'(p % CELL_BITS);
        for (genvar j = 0; j < CONVERTED; j++) begin : g_lane
            localparam bit IN_NEGATIVE = CELLS == 2 && (p >= CELL_BITS) != NEGATIVE_FIRST;
            localparam bit SIGN = j < LANES && SIGNED_CELLS[slice_of(j) % SLICES] && p % CELL_BITS == CELL_BITS - 1;
            assign negative_bits[j*PLANES + p] = j < LANES && IN_NEGATIVE != SIGN;
        end
    end

    // A word line is written word by word, the lowest first.
    logic [INDEX-1:0] index = '0;
    logic [LINE_WORDS*WORD-1:0] padded;
    assign padded = (LINE_WORDS*WORD)'(write_data);
    assign write_ready = 32'(index) == LINE_WORDS - 1;
    always_ff @(posedge clk)
        if (rst || (write_valid && write_ready)) index <= '0;
        else if (write_valid) index <= index + 1'b1;

    // The step of each column's slice; a step of 0 takes the sum.
    logic [CONVERTED*STEP_BITS-1:0] steps, steps_now;
    logic [CONVERTED*FINE_BITS-1:0] offsets;
    always_comb for (int j = 0; j < CONVERTED; j++) steps_now[j*STEP_BITS +: STEP_BITS] = step[slice_of(j)*STEP_BITS +: STEP_BITS];
    always_ff @(posedge clk)
        if (in_valid && in_ready) begin
            steps <= steps_now;
            offsets <= offset;
        end

    logic code_valid;
    logic [$clog2(SHARED+1)-1:0] column;
    logic [CONVERTERS*CODE_BITS-1:0] code;
    serial_macro #(
        .ROWS(ROWS), .COLUMNS(CONVERTED), .PLANES(PLANES), .WORD(WORD), .DIGIT_BITS(DIGIT_BITS), .SUM_BITS(SUM_BITS), .SHARED(SHARED),
        .CONVERTER(CONVERTER), .ROUNDING(ROUNDING), .REFERENCE_BITS(REFERENCE_BITS), .STEP_BITS(STEP_BITS), .FINE_BITS(FINE_BITS),
        .CODE_BITS(CODE_BITS)
    ) macro (
        .clk, .reset(rst), .negative_bits, .weights, .word_enable(write_valid), .word_row(write_row), .word_index(index),
        .word(padded[32'(index)*WORD +: WORD]), .ready(in_ready), .read(in_valid), .magnitudes(drive), .signs(negative),
        .steps, .offsets, .lowest(lo), .highest(hi), .code_valid, .column, .code
    );

    // A beat has the codes of every SHARED-th lane.
    logic [CONVERTERS*SHARED-1:0] answering;
    logic [CONVERTERS*SHARED*CODE_BITS-1:0] repeated;
    assign answering = {CONVERTERS{code_valid ? SHARED'(1) << column : SHARED'(0)}};
    for (genvar a = 0; a < CONVERTERS; a++) begin : g_converter
        assign repeated[a*SHARED*CODE_BITS +: SHARED*CODE_BITS] = {SHARED{code[a*CODE_BITS +: CODE_BITS]}};
    end
    assign out_valid = answering[CONVERTED-1:0];
    assign codes = repeated[CONVERTED*CODE_BITS-1:0];
    assign shows_sums = 1'b0;
    assign sums = '0;
    logic unused;
    assign unused = ^thresholds;
endmodule
