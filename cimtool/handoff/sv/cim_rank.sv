// The digital side of a search: an item's estimate from the sum of its words' codes, and the list of the
// LENGTH smallest estimates. Items come in their order, so that of equal estimates the lower item stays first.
module cim_rank #(
    parameter int LENGTH = 1
) (
    input  logic                 clk,
    input  logic                 start, // begins a new list
    input  logic                 valid,
    input  logic [31:0]          item,
    input  logic signed [63:0]   sum,
    input  logic signed [63:0]   factor,
    input  logic signed [63:0]   offset,
    output logic signed [63:0]   estimate,
    output logic [LENGTH*32-1:0] listed // place 0 lowest
);
    assign estimate = sum * factor + offset;

    // A place and those behind it move by one if the item is nearer; it then takes the first of them.
    logic signed [63:0] held [0:LENGTH-1];
    logic [31:0] item_of [0:LENGTH-1];
    logic taken [0:LENGTH-1], nearer [0:LENGTH-1];
    for (genvar i = 0; i < LENGTH; i++) begin : g_place
        assign nearer[i] = !taken[i] || (estimate < held[i]);
        assign listed[i*32 +: 32] = item_of[i];
        if (i == 0) begin : g_first
            always_ff @(posedge clk)
                if (start) taken[i] <= 1'b0;
                else if (valid && nearer[i]) begin
                    taken[i] <= 1'b1;
                    held[i] <= estimate;
                    item_of[i] <= item;
                end
        end else begin : g_other
            always_ff @(posedge clk)
                if (start) taken[i] <= 1'b0;
                else if (valid && nearer[i]) begin
                    taken[i] <= nearer[i-1] ? taken[i-1] : 1'b1;
                    held[i] <= nearer[i-1] ? held[i-1] : estimate;
                    item_of[i] <= nearer[i-1] ? item_of[i-1] : item;
                end
        end
    end
endmodule
