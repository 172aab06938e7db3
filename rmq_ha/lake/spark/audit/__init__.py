"""The job `audit-messages`: what was produced, what is stored, what was delivered."""
