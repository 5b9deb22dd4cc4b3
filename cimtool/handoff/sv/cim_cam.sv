// The reference array of a content-addressable memory: all words are compared with a query at once, and
// each has a converter for its distance. `make all CAM=my_cam.sv` puts another array with these ports here.
module cim_cam import cam::*; (
    input  logic clk,
    input  logic rst,
    // write port: the cells of a word, cell 0 lowest; all ones is X, which differs from no value
    input  logic                       write_valid,
    input  logic [WORD_BITS-1:0]       write_word,
    input  logic [CELLS*CELL_LANE-1:0] write_data,
    // a query is taken at a rising edge of clk at which in_valid is high
    input  logic                       in_valid,
    input  logic [CELLS*CELL_LANE-1:0] query,
    // in one later clock: the code of each word, word 0 lowest
    output logic                       out_valid,
    output logic [WORDS*LANE-1:0]      codes,
    // constant 1 if the array shows the distances too, with the codes
    output logic                       shows_distances,
    output logic [WORDS*LANE-1:0]      distances
);
    localparam int HAMMING = 0, L1 = 1;
    localparam logic [CELL_LANE-1:0] DONT_CARE = '1;

    logic [CELLS*CELL_LANE-1:0] held [0:WORDS-1];
    always_ff @(posedge clk) if (write_valid) held[(write_word)] <= write_data;

    function automatic logic [LANE-1:0] apart(input logic [CELL_LANE-1:0] cell_value, input logic [CELL_LANE-1:0] value);
        logic [LANE-1:0] levels;
        levels = (cell_value > value) ? LANE'(cell_value) - LANE'(value) : LANE'(value) - LANE'(cell_value);
        if (cell_value == DONT_CARE) apart = '0;
        else if (DISTANCE == HAMMING) apart = LANE'(levels != '0);
        else if (DISTANCE == L1) apart = levels;
        else apart = LANE'(levels * levels);
    endfunction

    function automatic logic [LANE-1:0] distance(input logic [CELLS*CELL_LANE-1:0] word);
        distance = '0;
        for (int c = 0; c < CELLS; c++)
            distance = distance + apart(word[c*CELL_LANE +: CELL_LANE], query[c*CELL_LANE +: CELL_LANE]);
    endfunction

    function automatic logic [LANE-1:0] converted(input logic [LANE-1:0] sensed);
        logic [LANE-1:0] quotient;
        quotient = (sensed) / LANE'(STEP);
        converted = (quotient > LANE'(TOP)) ? LANE'(TOP) : quotient;
    endfunction

    logic [WORDS*LANE-1:0] found;
    assign distances = found;
    assign shows_distances = 1'b1;
    always_ff @(posedge clk) begin
        out_valid <= in_valid && !rst;
        if (in_valid) for (int w = 0; w < WORDS; w++) found[w*LANE +: LANE] <= distance(held[w]);
    end
    always_comb for (int w = 0; w < WORDS; w++) codes[w*LANE +: LANE] = converted(found[w*LANE +: LANE]);
endmodule
