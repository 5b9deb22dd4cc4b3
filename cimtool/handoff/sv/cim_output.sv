// The digital end of a layer, one number per clock: row groups and bias, then requantisation.
//
//   sum   of all row groups, rounded half up to whole digits, plus the bias
//   y     clip((x * multiplier + 2^(shift-1)) >> shift, lo, hi), halves up; x is the sum, after
//         additions and limits if there are any
module cim_output #(
    parameter int ACC_BITS = 32,
    parameter int PLACES = 0,          // binary places of a digit in which row groups count
    parameter int SUM_BITS = 32,       // two's complement, holds every sum
    parameter int OUT_BITS = 24
) (
    input  logic                       clk,
    input  logic signed [ACC_BITS-1:0] total,       // of all row groups
    input  logic signed [SUM_BITS-1:0] bias,
    input  logic signed [SUM_BITS-1:0] x,
    input  logic [30:0]                multiplier,
    input  logic [5:0]                 shift,       // 1 to 62
    input  logic signed [OUT_BITS-1:0] lo,
    input  logic signed [OUT_BITS-1:0] hi,
    output logic signed [SUM_BITS-1:0] sum,
    output logic signed [OUT_BITS-1:0] y            // a clock after x
);
    localparam int HALF = (1 << PLACES) >> 1;
    logic signed [SUM_BITS-1:0] whole;
    assign whole = SUM_BITS'(((ACC_BITS+1)'(total) + (ACC_BITS+1)'(HALF)) >>> PLACES);
    assign sum = whole + bias;

    logic signed [63:0] scaled, half, rounded;
    assign scaled = 64'(x) * $signed({33'd0, multiplier});
    assign half = 64'sd1 <<< (shift - 6'd1);
    assign rounded = (scaled + half) >>> shift;
    always_ff @(posedge clk)
        if (rounded > 64'(hi)) y <= hi;
        else if (rounded < 64'(lo)) y <= lo;
        else y <= OUT_BITS'(rounded);
endmodule
