"""The page on the status port in a real browser, over simulated clusters."""
