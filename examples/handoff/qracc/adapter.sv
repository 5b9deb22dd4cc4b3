// From the bench's ports (handoff/sv/cim_adapter.sv explains them) to those of ts_qracc, the model of an
// array with charge redistribution and flash converters of
// https://github.com/Lawrence-lugs/QrAccelerator (examples/handoff/README.md).
//
// A row is switched to a voltage above the middle, below it or to the middle: the digits 1, -1 and 0. A
// column of cells of one bit shares the charge of those that hold 1, and its comparators show a
// thermometer code of 4 bits from -8. One setting doubles the range of all converters as often as it
// says, so the columns of each slice are converted by themselves, with the range that is theirs.
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
    localparam int BITS = 4, COMPARATORS = 15, LOWEST = -8;

    if (CELLS * CELL_BITS != 1 || SIGNED_CELLS != '0 || BESIDE != 0 || LEAK != 0) begin : g_cells
        initial $fatal(1, "qracc: its cells have one bit and no sign; expected encoding offset, cell_bits 1");
    end
    if (CONVERTER != 1 || ROUNDING != 0 || SET_REFERENCES) begin : g_converter
        initial $fatal(1, "qracc: its converters round halves up, with a step of 2^e; expected rounding half-up, references fixed");
    end
    if (DIGIT_BITS != 1) begin : g_digits
        initial $fatal(1, "qracc: digits of %0d bits; expected 1", DIGIT_BITS);
    end

    logic busy;
    logic [7:0] slice;
    logic [ROWS-1:0] up, down, word_line, none;
    logic [REFERENCES*STEP_BITS-1:0] held_step;
    assign none = '0;
    assign write_ready = !busy;
    assign in_ready = !busy;
    assign word_line = write_valid ? ROWS'(1) << write_row : '0;
    always_ff @(posedge clk)
        if (rst) busy <= 1'b0;
        else if (!busy) begin
            busy <= in_valid;
            slice <= '0;
            up <= drive & ~negative;
            down <= drive & negative;
            held_step <= step;
        end else begin
            slice <= slice + 8'd1;
            busy <= 32'(slice) != REFERENCES - 1;
        end

    // The range of the slice that is converted: the place of the one bit of its step.
    logic [STEP_BITS-1:0] width;
    logic [3:0] doublings;
    assign width = held_step[32'(slice)*STEP_BITS +: STEP_BITS];
    always_comb begin
        doublings = '0;
        for (int b = 1; b < STEP_BITS; b++) if (width[b]) doublings = 4'(b);
    end
    always @(posedge clk) begin
        if (in_valid && in_ready && (lo != CODE_BITS'(LOWEST) || hi != CODE_BITS'(LOWEST + COMPARATORS)))
            $fatal(1, "qracc: codes from %0d to %0d; expected 4 bits from -8, of layers with signed inputs", lo, hi);
        if (busy && width != STEP_BITS'(1) << doublings) $fatal(1, "qracc: a step of %0d; expected a power of two", width);
    end

    logic [CONVERTED-1:0] unread;
    logic [COMPARATORS*CONVERTED-1:0] thermometer;
    ts_qracc #(.numRows(ROWS), .numCols(CONVERTED), .numAdcBits(BITS)) macro (
        .adc_ref_range_shifts(doublings),
        .PSM_VDR_SEL(up), .PSM_VDR_SELB(~up), .PSM_VSS_SEL(down), .PSM_VSS_SELB(~down),
        .PSM_VRST_SEL(~(up | down)), .PSM_VRST_SELB(up | down),
        // Cells that hold 0 are not driven: its binary mode.
        .NSM_VDR_SEL(none), .NSM_VDR_SELB(~none), .NSM_VSS_SEL(none), .NSM_VSS_SELB(~none), .NSM_VRST_SEL(~none), .NSM_VRST_SELB(none),
        .SA_OUT(unread), .WL(word_line), .PCH(1'b1), .WR_DATA(write_data[CONVERTED-1:0]), .WRITE(write_valid && write_ready),
        .CSEL({CONVERTED{1'b1}}), .SAEN(1'b0), .ADC_OUT(thermometer),
        .NF(1'b0), .NFB(1'b1), .M2A(1'b1), .M2AB(1'b0), .R2A(1'b0), .R2AB(1'b1), .CLK(clk)
    );

    function automatic int ones(input logic [COMPARATORS-1:0] column);
        ones = $countones(column);
    endfunction
    always_comb
        for (int j = 0; j < CONVERTED; j++) begin
            out_valid[j] = busy && slice_of(j) == 32'(slice);
            codes[j*CODE_BITS +: CODE_BITS] = CODE_BITS'(LOWEST + ones(thermometer[j*COMPARATORS +: COMPARATORS]));
        end
    assign shows_sums = 1'b0;
    assign sums = '0;
    logic unused;
    assign unused = ^{offset, thresholds, unread};
endmodule
