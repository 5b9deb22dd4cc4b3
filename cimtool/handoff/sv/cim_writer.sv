// Write-verify of a word line: its cells are read, and those outside their bounds get a pulse, until none is
// or `max_pulses` were given. Conductances are unsigned numbers of 32 bits.
module cim_writer #(
    parameter int CELLS = 1
) (
    input  logic                clk,
    input  logic                start,
    input  logic [31:0]         max_pulses,
    input  logic [CELLS*32-1:0] lower,
    input  logic [CELLS*32-1:0] upper,
    input  logic [CELLS*32-1:0] read,
    output logic [CELLS-1:0]    up,   // cells that get a pulse in this clock: one that raises them,
    output logic [CELLS-1:0]    down, // or one that lowers them
    output logic                running
);
    logic [31:0] given;
    logic [CELLS-1:0] low, high;
    always_comb
        for (int c = 0; c < CELLS; c++) begin
            low[c] = (read[c*32 +: 32] < lower[c*32 +: 32]);
            high[c] = read[c*32 +: 32] > upper[c*32 +: 32];
        end
    logic pulsing;
    assign pulsing = running && (given < max_pulses) && ((low | high) != '0);
    assign up = pulsing ? {low} : '0;
    assign down = pulsing ? high : '0;
    always_ff @(posedge clk)
        if (start) begin
            running <= 1'b1;
            given <= '0;
        end else if (pulsing) given <= given + 32'd1;
        else running <= 1'b0;
endmodule
