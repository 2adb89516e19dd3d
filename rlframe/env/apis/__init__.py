"""What an environment may offer beyond stepping."""
