"""The leak guard: does a proposed prompt give away examples, personal data, secrets, or the optimizer's own words? Pure functions over an index that is built once a run."""
