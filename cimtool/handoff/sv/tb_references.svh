    // References of a layer's converters. A lossless one of equal steps has a step of one digit.
    task automatic load_references;
        longint width, scaled;
        int place;
        steps = '0; all_thresholds = '0; all_levels = '0;
        if (code_kind != 0)
            $readmemh({handoff, "/constants/", name, "/steps.hex"}, given_steps, 0, own_cycles * REFERENCES - 1);
        if (code_kind >= 2) begin
            place = (code_kind == 2) ? 1 : own_cycles * REFERENCES;
            $readmemh({handoff, "/constants/", name, "/thresholds.hex"}, given_thresholds, 0, place * THRESHOLDS - 1);
            $readmemh({handoff, "/constants/", name, "/levels.hex"}, given_levels, 0, place * (THRESHOLDS + 1) - 1);
        end
        for (int s = 0; code_kind != 0 && s < REFERENCES; s++)
            for (int t = 0; t < own_cycles; t++) begin
                width = given_steps[s*own_cycles + t];
                if (width == 0 && code_kind == 1) width = 64'sd1 <<< REFERENCE_BITS;
                steps[(t*REFERENCES + s)*STEP_BITS +: STEP_BITS] = STEP_BITS'(width);
                place = (code_kind == 2) ? 0 : s*own_cycles + t;
                if (code_kind >= 2) begin
                    for (int m = 0; m < THRESHOLDS; m++) begin
                        // Reached if sum << places >= threshold * step.
                        scaled = given_thresholds[place*THRESHOLDS + m] * width + (64'sd1 <<< threshold_places) - 64'sd1;
                        scaled = scaled >>> threshold_places;
                        all_thresholds[((t*REFERENCES + s)*THRESHOLDS + m)*FINE_BITS +: FINE_BITS] = FINE_BITS'(scaled);
                    end
                    for (int m = 0; m <= THRESHOLDS; m++) begin
                        scaled = given_levels[place*(THRESHOLDS+1) + m] * width;
                        all_levels[((t*REFERENCES + s)*(THRESHOLDS+1) + m)*FINE_BITS +: FINE_BITS] = FINE_BITS'(scaled);
                    end
                end
            end
    endtask

    // One row group of an array: rows first to stop - 1, then idle rows.
    task automatic read_group(input int first, input int stop, input int unused, input int column, input int end_column);
        offsets = '0;
        if (SET_REFERENCES) begin
            $readmemh({handoff, "/constants/", array, "/", group, ".offsets.hex"}, given_offsets, 0, own_cycles - 1);
            for (int t = 0; t < own_cycles; t++)
                for (int l = 0; l < CONVERTED; l++)
                    offsets[(t*CONVERTED + l)*FINE_BITS +: FINE_BITS] = given_offsets[t][l*64 +: FINE_BITS];
        end
        for (int r = 0; r < ROWS; r++) begin
            row_enable[r] = r >= first && r < stop;
            idle[r] = r >= stop && r < stop + unused;
        end
        use_weights(end_column - column);
        drive_group(column, end_column);
    endtask
