"""Request and response codes of controller mode, spelled as upstream.

Spec: controller.md, chapter 5.
"""

from enum import IntEnum


class ControllerRequestCode(IntEnum):
    """The request codes of controller mode. Spec: controller.md, sections 5.1 and 5.2."""

    BROKER_HEARTBEAT = 904
    ALTER_SYNC_STATE_SET = 1001
    ELECT_MASTER = 1002
    REGISTER_BROKER = 1003
    GET_REPLICA_INFO = 1004
    GET_METADATA_INFO = 1005
    GET_SYNC_STATE_DATA = 1006
    NOTIFY_BROKER_ROLE_CHANGED = 1008
    UPDATE_CONTROLLER_CONFIG = 1009
    GET_CONTROLLER_CONFIG = 1010
    CLEAN_BROKER_DATA = 1011
    GET_NEXT_BROKER_ID = 1012
    APPLY_BROKER_ID = 1013


class ControllerResponseCode(IntEnum):
    """The response codes of controller mode. Spec: controller.md, section 5.3."""

    SUCCESS = 0
    FENCED_MASTER_EPOCH = 2000
    FENCED_SYNC_STATE_SET_EPOCH = 2001
    INVALID_MASTER = 2002
    INVALID_REPLICAS = 2003
    MASTER_NOT_AVAILABLE = 2004
    INVALID_REQUEST = 2005
    BROKER_NOT_ALIVE = 2006
    NOT_LEADER = 2007
    METADATA_NOT_EXIST = 2008
    INVALID_CLEAN_BROKER_METADATA = 2009
    NEED_TO_BE_REGISTERED = 2010
    MASTER_STILL_EXIST = 2011
    ELECT_MASTER_FAILED = 2012
    ALTER_SYNC_STATE_SET_FAILED = 2013
    BROKER_ID_INVALID = 2014
