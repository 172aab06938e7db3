import com.alibaba.fastjson.JSON;
import java.util.*;
import org.apache.rocketmq.client.impl.consumer.ProcessQueue;
import org.apache.rocketmq.common.message.MessageExt;

/** Prints what Java's ProcessQueue answers to random calls, for tests/vectors/client/process_queue.json. */
public class ProcessQueueVectors {
    public static void main(String[] a) {
        List<Object> cases = new ArrayList<>();
        for (int seed = 0; seed < 24; seed++) {
            Random random = new Random(seed);
            boolean orderly = seed % 2 == 1;
            ProcessQueue queue = new ProcessQueue();
            Map<Long, MessageExt> out = new LinkedHashMap<>();
            List<Object> steps = new ArrayList<>();
            int taken = 0;
            long next = random.nextInt(5);
            for (int i = 0; i < 40; i++) {
                List<Object> step = new ArrayList<>();
                int what = random.nextInt(4);
                if (what == 0) {
                    List<MessageExt> put = new ArrayList<>();
                    List<Long> offsets = new ArrayList<>();
                    for (int n = random.nextInt(6); n >= 0; n--) {
                        MessageExt m = new MessageExt();
                        m.setQueueOffset(next);
                        m.setBody(new byte[random.nextInt(9)]);
                        offsets.add(next);
                        offsets.add((long) m.getBody().length);
                        put.add(m);
                        out.put(next, m);
                        next += 1 + random.nextInt(3) / 2;
                    }
                    queue.putMessage(put);
                    step.addAll(Arrays.asList("put", offsets, null));
                } else if (!orderly) {
                    List<Long> chosen = new ArrayList<>();
                    List<MessageExt> gone = new ArrayList<>();
                    for (Long offset : new ArrayList<>(out.keySet())) {
                        if (random.nextInt(3) == 0) { chosen.add(offset); gone.add(out.remove(offset)); }
                    }
                    step.addAll(Arrays.asList("remove", chosen, queue.removeMessage(gone)));
                } else if (what == 1) {
                    int count = 1 + random.nextInt(4);
                    List<Long> got = new ArrayList<>();
                    for (MessageExt m : queue.takeMessages(count)) { got.add(m.getQueueOffset()); taken++; }
                    step.addAll(Arrays.asList("take", count, got));
                } else if (what == 2) {
                    step.addAll(Arrays.asList("commit", null, taken == 0 ? -1L : queue.commit())); // else Java throws
                    taken = 0;
                } else {
                    queue.rollback();
                    taken = 0;
                    step.addAll(Arrays.asList("rollback", null, null));
                }
                step.add(Arrays.asList(queue.getMsgCount().get(), queue.getMaxSpan()));
                steps.add(step);
            }
            cases.add(steps);
        }
        System.out.println(JSON.toJSONString(cases, com.alibaba.fastjson.serializer.SerializerFeature.WriteMapNullValue));
    }
}
