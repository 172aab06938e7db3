"""From a message to its `SendResult`: with a reactor (`producer`), and without (`send_asking`)."""
