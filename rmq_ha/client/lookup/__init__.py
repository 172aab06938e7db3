"""What is asked of brokers and name servers, as generators that somebody else drives.

Enter at `asking`. `rmq_ha.client.lookups` and `rmq_ha.client.groups` name what is public here.
"""
