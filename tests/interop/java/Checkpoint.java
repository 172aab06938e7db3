import java.lang.reflect.Method;
import org.apache.rocketmq.store.StoreCheckpoint;

/** Opens a checkpoint as a broker does, prints it, and writes one more into each number. */
public class Checkpoint {
    public static void main(String[] arguments) throws Exception {
        StoreCheckpoint checkpoint = new StoreCheckpoint(arguments[0]);
        String[] names = {"PhysicMsgTimestamp", "LogicsMsgTimestamp", "IndexMsgTimestamp",
            "MasterFlushedOffset", "ConfirmPhyOffset"};
        StringBuilder found = new StringBuilder();
        for (String name : names) {
            try {
                long value = (long) StoreCheckpoint.class.getMethod("get" + name).invoke(checkpoint);
                found.append(value).append(' ');
                Method set = StoreCheckpoint.class.getMethod("set" + name, long.class);
                set.invoke(checkpoint, value + 1);
            } catch (NoSuchMethodException missing) {
                continue;
            }
        }
        checkpoint.flush();
        System.out.println(found.toString().trim());
    }
}
