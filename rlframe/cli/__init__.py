"""The `rlframe` command: train, evaluate, list, config.

`main` reads the command line, `flags` and `config_files` make a config of it, `training` and `evaluating` do the work,
`live` shows it, `show` prints what there is, `stop` says when a run is done, and `run_directory` knows what it leaves
behind. Nothing here is imported by the rest of the package, and `main` imports neither Ray nor a framework before a
command needs them.
"""
