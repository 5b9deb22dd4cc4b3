    // The step that runs, in the file +STEP=FILE: bench.sh ends a run in which no step follows.
    string step_file = "";
    task automatic at_step(input string where);
        int note;
        if (step_file != "") begin
            note = $fopen(step_file, "w");
            $fdisplay(note, "%s", where);
            $fclose(note);
        end
    endtask
