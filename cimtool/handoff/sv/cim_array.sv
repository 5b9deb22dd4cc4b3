// The reference array: its columns side by side, each with a converter.
//
// It knows no clock but for programming: sums and codes follow the digits. cim_adapter.sv has the
// clocks of a chip.
module cim_array import cim::*; (
    input  logic                          clk,
    input  logic                          write,
    input  logic [$clog2(ROWS)-1:0]       write_row,
    input  logic [LINE-1:0]               write_data,
    input  logic [DIGIT_BITS*ROWS-1:0]    drive,
    input  logic [ROWS-1:0]               negative,
    input  logic [REFERENCES*STEP_BITS-1:0]            step,
    input  logic [CONVERTED*FINE_BITS-1:0]             offset,
    input  logic [REFERENCES*THRESHOLDS*FINE_BITS-1:0] thresholds,
    input  logic signed [CODE_BITS-1:0]   lo,
    input  logic signed [CODE_BITS-1:0]   hi,
    output logic [CONVERTED*SUM_BITS-1:0] sums,
    output logic [CONVERTED*CODE_BITS-1:0] codes
);
    // After the cells of weights come the unit column, then the reference column.
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
    logic signed [SUM_BITS-1:0] sum_of_lane [0:CONVERTED-1];
    logic signed [CODE_BITS-1:0] code_of_lane [0:CONVERTED-1];
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
            .sum(sum_of_lane[j]), .code(code_of_lane[j])
        );
    end
    always_comb
        for (int j = 0; j < CONVERTED; j++) begin
            sums[j*SUM_BITS +: SUM_BITS] = sum_of_lane[j];
            codes[j*CODE_BITS +: CODE_BITS] = code_of_lane[j];
        end
endmodule
