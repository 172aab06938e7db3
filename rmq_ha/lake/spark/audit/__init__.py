"""The job `audit-messages`: compares the messages that were produced, stored and delivered."""
