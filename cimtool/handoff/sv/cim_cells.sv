// A model of the cells of a word line for cim_writer.sv, not of a device: a pulse changes a cell by 9 to 16
// sixteenths of `pulse`, by its place, so that no number of pulses is right for all cells.
module cim_cells #(
    parameter int CELLS = 1
) (
    input  logic                clk,
    input  logic                erase,
    input  logic [31:0]         word_line,
    input  logic [31:0]         erased, // what an erased cell conducts
    input  logic [31:0]         pulse,
    input  logic [CELLS-1:0]    up,
    input  logic [CELLS-1:0]    down,
    output logic [CELLS*32-1:0] conductance
);
    logic [31:0] held [0:CELLS-1];
    for (genvar c = 0; c < CELLS; c++) begin : g_cell
        logic [31:0] change;
        assign change = (pulse * (32'd9 + (32'd5 * word_line + 32'd3 * 32'(c)) % 32'd8)) >> 4;
        assign conductance[c*32 +: 32] = held[c];
        always_ff @(posedge clk)
            if (erase) held[c] <= erased;
            else if (up[c]) held[c] <= held[c] + change;
            else if (down[c]) held[c] <= (held[c] > change) ? held[c] - change : 32'd0;
    end
endmodule
