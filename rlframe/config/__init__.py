"""What a config may say: declarations, defaults, checks and merging. Import the submodules; this file stays light."""
