    // The output unit: a column's sum over all row groups, then its requantisation.
    task automatic sum_up(input logic signed [ACC_BITS-1:0] total, input int column);
        @(negedge clk);
        o_total = total;
        o_bias = LAYER_BITS'(bias[column]);
        @(negedge clk);
    endtask

    task automatic load_requantiser;
        string base;
        base = {handoff, "/constants/", after};
        $readmemh({base, "/multiplier.hex"}, multiplier, 0, columns - 1);
        $readmemh({base, "/shift.hex"}, shift, 0, columns - 1);
        $readmemh({base, "/lo.hex"}, least, 0, columns - 1);
        $readmemh({base, "/hi.hex"}, most, 0, columns - 1);
        if (stages != 0) $readmemh({base, "/affine.hex"}, affine, 0, 4 * stages * columns - 1);
    endtask

    // Additions and limits between a layer's sum and its requantisation.
    function automatic logic signed [63:0] after_stages(input logic signed [63:0] sum, input int column);
        after_stages = sum;
        for (int s = 0; s < stages; s++) begin
            after_stages = after_stages * affine[(s*columns + column)*4] + affine[(s*columns + column)*4 + 1];
            if (after_stages < affine[(s*columns + column)*4 + 2]) after_stages = affine[(s*columns + column)*4 + 2];
            if (after_stages > affine[(s*columns + column)*4 + 3]) after_stages = affine[(s*columns + column)*4 + 3];
        end
    endfunction

    task automatic drive_requantiser(input logic signed [63:0] given, input int column);
        @(negedge clk);
        o_x = LAYER_BITS'(given);
        o_multiplier = 31'(multiplier[column]); o_shift = 6'(shift[column]);
        o_lo = OUT_BITS'(least[column]); o_hi = OUT_BITS'(most[column]);
        @(negedge clk);
    endtask
