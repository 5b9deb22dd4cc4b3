    // The vectors of a read are those of taps/, and a layer's sums are those over all row groups.
    localparam int SHOWN = TAPS; // taps that are shown

    task automatic drive_group(input int column, input int end_column);
        string base, shared_base;
        base = {handoff, "/taps/", array, "/", group};
        shared_base = {handoff, "/taps/", across, "/", group};
        $readmemh({shared_base, ".inputs.hex"}, inputs, 0, vectors - 1);
        $readmemh({shared_base, ".digits.hex"}, want_digits, 0, vectors * 32'(cycles) - 1);
        $readmemh({base, ".sums.hex"}, want_sums, 0, vectors * 32'(cycles) - 1);
        $readmemh({base, ".codes.hex"}, want_codes, 0, vectors * 32'(cycles) - 1);
        $readmemh({base, ".shift_add.hex"}, want_acc, 0, vectors - 1);
        drive_vectors(column, end_column);
    endtask

    // Adds what a row group gave to the layer's sum of a column.
    task automatic add_up(input int n, input int column);
        sum_before = totals[n*WIDTH + column];
        totals[n*WIDTH + column] = sum_before + ACC_BITS'(whole);
    endtask

    // Compares the layer's sums over all row groups.
    task automatic sum_layer;
        if (code_kind != 0) direct_converter;
        direct_counts;
        $readmemh({handoff, "/constants/", name, "/bias.hex"}, bias, 0, columns - 1);
        $readmemh({handoff, "/taps/", name, "/layer_sum.hex"}, want_sum, 0, vectors * columns - 1);
        for (int n = 0; n < vectors; n++)
            for (int j = 0; j < columns; j++) begin
                @(negedge clk);
                o_total = totals[n*WIDTH + j];
                totals[n*WIDTH + j] = '0;
                o_bias = LAYER_BITS'(bias[j]);
                @(negedge clk);
                layer_sums[n*WIDTH + j] = 64'(o_sum);
                count(4, 64'd1, (64'(o_sum) === want_sum[n*columns + j]) ? 64'd0 : 64'd1);
            end
    endtask

    // Requantises these sums, and compares the results.
    task automatic requantise;
        string base;
        logic signed [63:0] value;
        base = {handoff, "/constants/", after};
        $readmemh({base, "/multiplier.hex"}, multiplier, 0, columns - 1);
        $readmemh({base, "/shift.hex"}, shift, 0, columns - 1);
        $readmemh({base, "/lo.hex"}, least, 0, columns - 1);
        $readmemh({base, "/hi.hex"}, most, 0, columns - 1);
        if (stages != 0) $readmemh({base, "/affine.hex"}, affine, 0, 4 * stages * columns - 1);
        $readmemh({handoff, "/taps/", after, "/requantised.hex"}, want_out, 0, vectors * columns - 1);
        for (int n = 0; n < vectors; n++)
            for (int j = 0; j < columns; j++) begin
                value = layer_sums[n*WIDTH + j];
                for (int s = 0; s < stages; s++) begin
                    value = value * affine[(s*columns + j)*4] + affine[(s*columns + j)*4 + 1];
                    if (value < affine[(s*columns + j)*4 + 2]) value = affine[(s*columns + j)*4 + 2];
                    if (value > affine[(s*columns + j)*4 + 3]) value = affine[(s*columns + j)*4 + 3];
                end
                @(negedge clk);
                o_x = LAYER_BITS'(value);
                o_multiplier = 31'(multiplier[j]); o_shift = 6'(shift[j]);
                o_lo = OUT_BITS'(least[j]); o_hi = OUT_BITS'(most[j]);
                @(negedge clk);
                count(5, 64'd1, (64'(o_y) === want_out[n*columns + j]) ? 64'd0 : 64'd1);
            end
        direct_requantiser;
    endtask

    // Numbers next to the requantiser's thresholds, DIRECTED per column.
    task automatic direct_requantiser;
        string base;
        base = {handoff, "/directed/", after, "/requantiser_"};
        $readmemh({base, "in.hex"}, directed_in, 0, DIRECTED * columns - 1);
        $readmemh({base, "out.hex"}, directed_out, 0, DIRECTED * columns - 1);
        for (int n = 0; n < DIRECTED; n++)
            for (int j = 0; j < columns; j++) begin
                @(negedge clk);
                o_x = LAYER_BITS'(directed_in[n*columns + j]);
                o_multiplier = 31'(multiplier[j]); o_shift = 6'(shift[j]);
                o_lo = OUT_BITS'(least[j]); o_hi = OUT_BITS'(most[j]);
                @(negedge clk);
                count(6, 64'd1, (64'(o_y) === directed_out[n*columns + j]) ? 64'd0 : 64'd1);
            end
    endtask
