"""The `rlframe` command: train, play, evaluate, serve, plot, compare, tune, report, revive, convert, list, config.

`main` is the program and `app` what all commands share: config flags, help, errors in one line. `*_command(s)` read the
command lines; `flags`, `config_files` and `algorithms` make a config of them. `training` drives a run, with `stop` and
`patience` to end it, `live` to show it, `monitors` to tell others, and `run_directory` for what it leaves behind.
`evaluating` and `recording` play it back, `tuning` and `tune_trial` search, `show` prints what there is.

Nothing here is imported by the rest of the package, and `main` imports neither Ray nor a framework before a command
needs them.
"""
