"""Small environments whose best return is known; see the modules."""
