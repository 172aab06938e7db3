import com.alibaba.fastjson.JSON;
import java.util.*;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.*;
import org.apache.rocketmq.client.consumer.store.OffsetSerializeWrapper;
import org.apache.rocketmq.common.message.MessageQueue;

/** Prints what Java's allocation strategies answer, for tests/vectors/client/rebalance.json. */
public class RebalanceVectors {
    static List<Object> cases = new ArrayList<>();
    static AllocateMessageQueueStrategy make(String name) {
        switch (name) {
            case "AVG": return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE": return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH": return new AllocateMessageQueueConsistentHash();
            case "CONSISTENT_HASH-3": return new AllocateMessageQueueConsistentHash(3);
            case "MACHINE_ROOM": {
                AllocateMessageQueueByMachineRoom r = new AllocateMessageQueueByMachineRoom();
                r.setConsumeridcs(new HashSet<>(Arrays.asList("r0", "r1")));
                return r;
            }
            default: return new AllocateMachineRoomNearby(make(name.substring(name.indexOf('-') + 1)),
                new AllocateMachineRoomNearby.MachineRoomResolver() {
                    public String brokerDeployIn(MessageQueue q) { return q.getBrokerName().split("@")[0]; }
                    public String consumerDeployIn(String c) { return c.split("-")[0]; }
                });
        }
    }
    public static void main(String[] a) {
        Random random = new Random(7);
        String[] names = {"AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "CONSISTENT_HASH-3", "MACHINE_ROOM",
            "MACHINE_ROOM_NEARBY-AVG", "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE"};
        for (int i = 0; i < 25; i++) {
            List<MessageQueue> queues = new ArrayList<>();
            int brokers = 1 + random.nextInt(4);
            for (int b = 0; b < brokers; b++) {
                String room = "r" + random.nextInt(4);
                String broker = random.nextInt(6) == 0 ? room : room + "@broker-" + b + (random.nextInt(8) == 0 ? "@" : "");
                for (int q = 0; q < 1 + random.nextInt(6); q++) queues.add(new MessageQueue("Tópic" + i % 3, broker, q));
            }
            queues = new ArrayList<>(new HashSet<>(queues));
            List<String> clients = new ArrayList<>();
            int members = 1 + random.nextInt(7);
            for (int m = 0; m < members; m++) clients.add("r" + random.nextInt(4) + "-10.0.0." + random.nextInt(20) + "@" + random.nextInt(9999) + "#" + m);
            Collections.sort(queues);
            Collections.sort(clients);
            Map<String, Object> results = new LinkedHashMap<>();
            for (String name : names) {
                Map<String, Object> byClient = new LinkedHashMap<>();
                List<String> asked = new ArrayList<>(clients);
                asked.add("r0-stranger");
                for (String client : asked) byClient.put(client, positions(make(name).allocate("g", client, queues, clients), queues));
                results.put(name, byClient);
            }
            List<Object> qs = new ArrayList<>();
            for (MessageQueue q : queues) qs.add(Arrays.asList(q.getTopic(), q.getBrokerName(), q.getQueueId()));
            Map<String, Object> one = new LinkedHashMap<>();
            one.put("queues", qs); one.put("clients", clients); one.put("results", results);
            cases.add(one);
        }
        System.out.println(JSON.toJSONString(cases));
        OffsetSerializeWrapper w = new OffsetSerializeWrapper();
        w.getOffsetTable().put(new MessageQueue("T", "broker-a", 3), new java.util.concurrent.atomic.AtomicLong(42));
        System.err.println(w.toJson(true));
        w.getOffsetTable().put(new MessageQueue("T", "broker-b", 0), new java.util.concurrent.atomic.AtomicLong(7));
        System.err.println(w.toJson(true));
        System.err.println(new OffsetSerializeWrapper().toJson(true));
        System.err.println(OffsetSerializeWrapper.fromJson(w.toJson(true), OffsetSerializeWrapper.class).getOffsetTable());
    }
    static List<Integer> positions(List<MessageQueue> mine, List<MessageQueue> all) {
        List<Integer> out = new ArrayList<>();
        for (MessageQueue q : mine) out.add(all.indexOf(q));
        return out;
    }
}
