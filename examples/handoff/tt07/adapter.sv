// From the bench's ports (handoff/sv/cim_adapter.sv explains them) to those of
// tt_um_8bit_vector_compute_in_SRAM, a chip of Tiny Tapeout 7
// (https://github.com/ramyadhadidi/tt07-8bit-vector-compute-in-SRAM; examples/handoff/README.md).
//
// A chip is a column: 8 weights and 8 inputs of 8 bits, never negative, and their sum of products in 19
// bits. All go through pins of 8 bits: an operation and an address, a byte in, a byte out. Here a chip
// for each column takes the same operations.
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
    localparam int SIZE = 8, BYTES = 3;
    localparam logic [1:0] LOAD_W = 2'b00, LOAD_A = 2'b01, READ_S = 2'b10, NOP = 2'b11;

    if (ROWS > SIZE) begin : g_rows
        initial $fatal(1, "tt07: %0d rows; expected at most 8", ROWS);
    end
    if (CELLS != 1 || CELL_BITS > 8 || SIGNED_CELLS != '0 || BESIDE != 0 || LEAK != 0 || CONVERTER != 0) begin : g_cells
        initial $fatal(1, "tt07: its cells have 8 bits and no sign, its sums no converter; expected encoding offset, cell_bits 8");
    end
    if (DIGIT_BITS > 8) begin : g_digits
        initial $fatal(1, "tt07: digits of %0d bits; expected at most 8", DIGIT_BITS);
    end

    localparam logic [1:0] IDLE = 2'd0, LOAD = 2'd1, SUM = 2'd2, SHOW = 2'd3;
    logic [1:0] phase;
    logic [2:0] row;
    logic [2:0] shown;  // clocks since the sum was asked for: from the second on a byte, the highest first
    logic [DIGIT_BITS*ROWS-1:0] held;
    assign write_ready = phase == IDLE;
    assign in_ready = phase == IDLE;

    logic [7:0] input_byte, operation;
    always_comb begin
        input_byte = '0;
        for (int d = 0; d < DIGIT_BITS; d++) input_byte[d] = held[d*ROWS + 32'(row)];
        case (phase)
            IDLE: operation = write_valid ? {LOAD_W, 6'(write_row)} : {NOP, 6'd0};
            LOAD: operation = {LOAD_A, 3'd0, row};
            SUM: operation = {READ_S, 6'd0};
            default: operation = {NOP, 6'd0};
        endcase
    end

    always_ff @(posedge clk)
        if (rst) phase <= IDLE;
        else case (phase)
            IDLE: if (in_valid) begin
                held <= drive;
                row <= '0;
                phase <= LOAD;
            end
            LOAD: begin
                row <= row + 3'd1;
                if (32'(row) == ROWS - 1) phase <= SUM;
            end
            SUM: begin
                shown <= '0;
                phase <= SHOW;
            end
            SHOW: begin
                shown <= shown + 3'd1;
                if (32'(shown) == BYTES + 1) phase <= IDLE;
            end
        endcase

    always @(posedge clk)
        if (in_valid && in_ready && negative != '0) $fatal(1, "tt07: a digit is negative; expected inputs of encoding offset");

    assign out_valid = {CONVERTED{phase == SHOW && 32'(shown) == BYTES + 1}};
    for (genvar j = 0; j < CONVERTED; j++) begin : g_chip
        logic [7:0] byte_in, byte_out, no_output, no_enable;
        logic [8*BYTES-1:0] sum;
        assign byte_in = (phase == IDLE) ? 8'(write_data[j*CELL_BITS +: CELL_BITS]) : input_byte;
        tt_um_8bit_vector_compute_in_SRAM chip (
            .ui_in(operation), .uo_out(byte_out), .uio_in(byte_in), .uio_out(no_output), .uio_oe(no_enable),
            .ena(1'b1), .clk, .rst_n(!rst)
        );
        always_ff @(posedge clk) if (phase == SHOW && shown != '0) sum <= {sum[8*BYTES-9:0], byte_out};
        assign sums[j*SUM_BITS +: SUM_BITS] = SUM_BITS'(sum);
        assign codes[j*CODE_BITS +: CODE_BITS] = CODE_BITS'(sum);
        logic unused_pins;
        assign unused_pins = ^{no_output, no_enable};
    end
    assign shows_sums = 1'b1;
    logic unused;
    assign unused = ^{step, offset, thresholds, lo, hi};
endmodule
