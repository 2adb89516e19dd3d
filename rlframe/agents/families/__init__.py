"""What algorithms of one kind share: keys, plans and postprocessing. An algorithm builds on these, not on another."""
