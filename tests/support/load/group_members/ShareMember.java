import java.io.IOException;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a share group that accepts what it is given: `BOOTSTRAP TOPIC GROUP`. It ends when its stdin does.
 *
 * <p>It tells, in the words of told.py: `read PARTITION FIRST LAST` before it accepts records, `accepted PARTITION FIRST
 * LAST` once that was confirmed, `closed` at its end.
 */
public final class ShareMember {
    private static final Duration POLL = Duration.ofMillis(100);

    private ShareMember() {}

    public static void main(String[] arguments) {
        AtomicBoolean isLeaving = new AtomicBoolean();
        Thread listener = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (IOException ended) {
                // That is an end as well.
            }
            isLeaving.set(true);
        });
        listener.setDaemon(true);
        listener.start();
        Properties properties = new Properties();
        properties.putAll(Map.of(
                "bootstrap.servers", arguments[0],
                "group.id", arguments[2],
                "share.acknowledgement.mode", "explicit",
                "reconnect.backoff.max.ms", "200"));
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(
                properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(arguments[1]));
            while (!isLeaving.get()) {
                step(consumer);
            }
        }
        say("closed");
    }

    private static void step(KafkaShareConsumer<byte[], byte[]> consumer) {
        List<ConsumerRecord<byte[], byte[]>> records =
                StreamSupport.stream(consumer.poll(POLL).spliterator(), false).toList();
        SortedMap<Integer, List<Long>> offsets = records.stream().collect(Collectors.groupingBy(
                ConsumerRecord::partition,
                TreeMap::new,
                Collectors.mapping(ConsumerRecord::offset, Collectors.toList())));
        offsets.forEach((partition, found) -> tell("read", partition, found));
        records.forEach(consumer::acknowledge);
        if (records.isEmpty()) {
            return;
        }
        Map<TopicIdPartition, Optional<KafkaException>> outcome = consumer.commitSync();
        outcome.forEach((partition, error) -> {
            if (error.isEmpty() && offsets.containsKey(partition.partition())) {
                tell("accepted", partition.partition(), offsets.get(partition.partition()));
            }
        });
    }

    /** Offsets, ascending; one line for each run without a gap. */
    private static void tell(String what, int partition, List<Long> offsets) {
        long first = offsets.get(0);
        long last = first;
        for (long offset : offsets) {
            if (offset > last + 1) {
                say(what + " " + partition + " " + first + " " + last);
                first = offset;
            }
            last = offset;
        }
        say(what + " " + partition + " " + first + " " + last);
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
