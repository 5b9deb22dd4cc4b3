    // The boundary between the bench and an array. sv/faulty/ has faults in these expressions, which any
    // array shows.
    logic [CONVERTED-1:0] answering, answering_before;
    logic [CONVERTED*CODE_BITS-1:0] shown, shown_before;
    always_ff @(posedge clk) begin
        answering_before <= answering;
        shown_before <= shown;
    end
    assign {out_valid, codes} = {answering, shown};
    cim_adapter array_under_test (
        .clk, .rst, .write_valid, .write_ready, .write_row(write_row), .write_data(write_data), .in_valid, .in_ready,
        .drive(drive), .negative, .step(array_step), .offset(array_offset), .thresholds(array_thresholds), .lo, .hi,
        .out_valid(answering), .codes(shown), .shows_sums, .sums
    );
