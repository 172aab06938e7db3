"""Accounts for brokers with ACL."""

FILE = """globalWhiteRemoteAddresses: []
accounts:
- accessKey: adminadmin
  secretKey: adminsecret
  whiteRemoteAddress:
  admin: true
- accessKey: useruser
  secretKey: usersecret
  previousSecretKey: formersecret
  certificateNames:
  - user.example
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - Pub=PUB
  - Sub=SUB
  - Both=PUB|SUB
  groupPerms:
  - g-Both=SUB
  - p=PUB
- accessKey: slaveslave
  secretKey: slavesecret
  admin: true
"""
FORMER = "useruser formersecret"
"""As `USER`, signed with the secret that it had before; Java knows of none."""
ADMIN, USER = "adminadmin adminsecret", "useruser usersecret"
