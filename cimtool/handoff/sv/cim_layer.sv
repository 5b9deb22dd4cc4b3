// The periphery of an array with the settings of one layer, for `make synth`: what a chip that holds
// this layer alone would build. settings.svh is made of steps.txt.
module cim_layer import cim::*; (
    input  logic                          clk,
    input  logic                          rst,
    // Read by read: registers of the chip, or its memory.
    input  logic [ROWS-1:0]               row_enable,
    input  logic [ROWS-1:0]               idle,
    input  logic [LANES-1:0]              flipped,
    input  logic [REFERENCES*STEP_BITS-1:0]              step,
    input  logic [CONVERTED*FINE_BITS-1:0]               offset,
    input  logic [REFERENCES*(THRESHOLDS+1)*FINE_BITS-1:0] levels,
    output logic [5:0]                    answered,
    output logic [5:0]                    asked,
    output logic                          in_valid,
    input  logic                          in_ready,
    output logic [DIGIT_BITS*ROWS-1:0]    drive,
    output logic [ROWS-1:0]               negative,
    input  logic [CONVERTED-1:0]          out_valid,
    input  logic [CONVERTED*CODE_BITS-1:0] codes,
    input  logic                          start,
    input  logic [ROWS*INPUT_BITS-1:0]    x,
    output logic                          done,
    output logic [WEIGHTS*ACC_BITS-1:0]   acc
);
`include "settings.svh"
    logic [ROWS*DIGIT_LANE-1:0] digits; // a tap of the bench
    cim_macro macro (
        .clk, .rst, .sign_magnitude(SIGN_MAGNITUDE), .lift(LIFT), .cycles(USED_CYCLES), .cycle_shift(CYCLE_SHIFT),
        .cycle_bits(CYCLE_BITS), .cycle_negative(CYCLE_NEGATIVE), .slice_shift(SLICE_SHIFT), .slice_negative(SLICE_NEGATIVE),
        .slice_factor(SLICE_FACTOR), .lo(LOWEST), .complement(COMPLEMENT), .weight_offset(WEIGHT_OFFSET),
        .row_enable, .idle, .flipped(FLAGS ? flipped : '0), .answered,
        .step(SET_REFERENCES ? step : STEP), .offset(SET_REFERENCES ? offset : '0), .levels,
        .asked, .in_valid, .in_ready, .drive, .negative, .out_valid, .codes, .start, .x, .done, .acc, .digits
    );
endmodule

// The output unit, as wide as the layers of this kind need it.
module cim_layer_output import cim::*; (
    input  logic                          clk,
    input  logic signed [ACC_BITS-1:0]    total,
    input  logic signed [LAYER_BITS-1:0]  bias,
    input  logic signed [LAYER_BITS-1:0]  x,
    input  logic [30:0]                   multiplier,
    input  logic [5:0]                    shift,
    input  logic signed [OUT_BITS-1:0]    lo,
    input  logic signed [OUT_BITS-1:0]    hi,
    output logic signed [LAYER_BITS-1:0]  sum,
    output logic signed [OUT_BITS-1:0]    y
);
    cim_output #(
        .ACC_BITS(ACC_BITS), .PLACES(FRACTION_BITS + REFERENCE_BITS), .SUM_BITS(LAYER_BITS), .OUT_BITS(OUT_BITS)
    ) unit (.clk, .total, .bias, .x, .multiplier, .shift, .lo, .hi, .sum, .y);
endmodule
